"""A model that is served over HTTP, to callers who use it in their own ways."""
