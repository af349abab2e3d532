"""The log of HATCH_PRECOMPILE=log: a standard logger, named after the wheel's package."""

from __future__ import annotations

import logging

__all__ = ["logger"]


def logger(package: str) -> logging.Logger:
    """The logger `<package>._precompiled`, at INFO; to stderr where the process set up no logging."""
    found = logging.getLogger(f"{package}._precompiled")
    found.setLevel(logging.INFO)
    if not found.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        found.addHandler(handler)
    return found
