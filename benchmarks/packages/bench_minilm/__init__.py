"""Benchmark project: the example project's encoder with random weights; model.py is copied in from it."""
