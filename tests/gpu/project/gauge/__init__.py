"""Models that are checked on a GPU."""
