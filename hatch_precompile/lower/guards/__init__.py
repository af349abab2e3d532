"""Guard tree to guard function, one noun a module."""
