"""Benchmark project: an LSTM of two layers, random weights."""
