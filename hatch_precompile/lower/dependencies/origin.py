"""Which files are torch's or Python's: those are unchanged if the versions are."""

from __future__ import annotations

import os
import sysconfig
from typing import Any

from hatch_precompile.static_lookup import file_of
from hatch_precompile.tracing.assumptions.notes import of_torch as is_torch

__all__ = ["is_librarys", "is_python", "is_torch"]


def is_python(filename: str) -> bool:
    library = sysconfig.get_path("stdlib")
    return filename.startswith(("<frozen", library + os.sep)) and "site-packages" not in filename


def is_librarys(module: Any) -> bool:
    """Whether a module is torch's or Python's: as it was, if the versions are."""
    file = file_of(module) or "<frozen>"
    return is_torch(file) or is_python(file)
