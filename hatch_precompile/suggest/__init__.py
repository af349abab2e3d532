"""What `hatch-precompile suggest` makes of records: an entrypoint's configuration for the calls it had."""
