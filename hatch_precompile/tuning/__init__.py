"""`hatch-precompile tune`: which configurations of a wheel's kernels a GPU runs fastest, measured on one."""
