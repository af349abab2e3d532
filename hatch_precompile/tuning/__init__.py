"""`hatch-precompile tune`: which configurations of a wheel's kernels a GPU runs fastest, measured on one, and
kept in a file of the project that builds without a GPU read."""
