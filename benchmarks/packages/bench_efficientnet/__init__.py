"""Benchmark project: transformers' EfficientNet-B0, random weights. The class lives in a dependency."""
