"""Functions and classes of every kind that can be a target, for tests of what a wheel leaves as it was."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "lazily":
        from .later import lazily

        return lazily
    raise AttributeError(name)
