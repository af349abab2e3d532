"""Figures as people read them."""

from __future__ import annotations

__all__ = ["in_bytes"]


def in_bytes(number: float) -> str:
    """A number of bytes, to three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
