"""What each kind of hardware has where a wheel runs: a folder here for each in hatch_precompile/backends/."""

WHOLE = True
