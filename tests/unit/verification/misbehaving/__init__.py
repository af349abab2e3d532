"""A package that stands for one that was built."""
