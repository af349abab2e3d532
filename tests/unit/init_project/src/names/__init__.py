"""A package whose classes are reached by names of every kind; test_init_names.py says which are models."""

from .Encoder import Encoder

__all__ = ["Encoder"]
