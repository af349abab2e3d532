"""A package with one model."""
