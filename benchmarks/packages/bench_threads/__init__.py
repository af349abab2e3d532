"""A function whose time is all in inductor's own kernels."""
