"""Small programs, each of which does one thing that a compiler of Python has to get right."""
