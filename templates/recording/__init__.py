"""What calls look like, written to a file for `hatch-precompile suggest`."""

WHOLE = True
