"""Benchmark project: linear layers, to see who multiplies them fastest."""
