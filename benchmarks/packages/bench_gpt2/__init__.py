"""Benchmark project: transformers' GPT2Model, 12 layers, random weights. Its layers keep their weights turned."""
