"""A package with models for CPUs and GPUs."""
