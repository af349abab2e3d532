"""Benchmark project: one entrypoint with 256 entries, to see what their number costs at import."""
