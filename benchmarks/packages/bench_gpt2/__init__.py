"""Benchmark project: transformers' GPT2Model, 12 layers, random weights; they lie turned."""
