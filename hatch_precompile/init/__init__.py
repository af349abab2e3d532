"""What `hatch-precompile init` proposes, from a project's sources."""
