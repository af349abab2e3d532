"""Benchmark project: small programs, to see what a call costs around its kernels."""
