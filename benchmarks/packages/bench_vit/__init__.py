"""Benchmark project: transformers' ViT-B/16, random weights. The class lives in a dependency."""
