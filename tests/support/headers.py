"""Torch's headers, compiled once for all the builds and graphs of a test run.

They are most of what a small library costs to compile: with them it takes a third of the time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

__all__ = ["compiled_headers", "remove_headers", "settings_of_a_build", "share_headers"]

_FOLDER = "TESTS_COMPILED_HEADERS"
_MANY = 100  # graphs: more than compiling the headers takes to pay


def compiled_headers() -> Path | None:
    """The folder that they are kept in, which pytest's processes share; None without pytest."""
    folder = os.environ.get(_FOLDER)
    return Path(folder) if folder else None


def settings_of_a_build() -> AbstractContextManager[Any]:
    """For graphs that a test compiles by itself."""
    from hatch_precompile.inductor import capture_settings

    folder = compiled_headers()
    return capture_settings({}, _MANY, headers=str(folder)) if folder else capture_settings({}, 1)


def share_headers() -> bool:
    """Make the folder. Returns whether this process did, and not the one that started it."""
    if compiled_headers() is not None:
        return False
    os.environ[_FOLDER] = tempfile.mkdtemp(prefix="compiled-headers-")
    return True


def remove_headers() -> None:
    shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)
