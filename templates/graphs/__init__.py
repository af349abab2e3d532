"""Graphs as callables: libraries, what torch puts around them, and what of weights is computed once."""

WHOLE = True
