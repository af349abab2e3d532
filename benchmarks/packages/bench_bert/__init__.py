"""Benchmark project: transformers' BertModel, 12 layers, random weights. The class lives in a dependency."""
