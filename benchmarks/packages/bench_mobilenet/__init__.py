"""Benchmark project: MobileNetV3-Large, random weights."""
