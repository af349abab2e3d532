"""The directory that a wheel carries: its format, what writes it, what reads it."""
