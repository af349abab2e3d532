"""Layers on x86-64: which functions multiply them, and the kernels that are ours."""
