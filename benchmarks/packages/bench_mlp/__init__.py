"""Benchmark project: two linear layers."""
