"""A dependency of the specimens: somebody else's package, which is upgraded on its own."""
