"""Compares what an entry depends on beside its guards with this process."""

WHOLE = True
