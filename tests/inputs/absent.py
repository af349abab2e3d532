"""A module of a dependency, which in another version has more."""
