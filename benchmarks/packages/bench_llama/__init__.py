"""Benchmark project: a step of transformers' Llama, that decodes one token beside a static cache."""
