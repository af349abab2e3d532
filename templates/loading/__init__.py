"""Reads a bundle: its manifest, its files, and the entries that they make."""

WHOLE = True
