"""Sentence-embedding search with all-MiniLM-L6-v2."""

# Nothing that imports torch belongs here: `minilm-search --help` imports this module too.

__all__ = ["__version__"]

__version__ = "0.1.0"
