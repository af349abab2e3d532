"""Benchmark project: transformers' ResNet-50, random weights. The class lives in a dependency."""
