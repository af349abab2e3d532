"""Entrypoints that cannot be built, each for one reason."""
