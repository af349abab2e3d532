"""Puts the entries of a bundle into a process, and takes them out again."""

WHOLE = True
