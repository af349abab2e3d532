"""The cells of a matrix: one minor version of Python and one version of torch each."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from packaging.version import Version

from hatch_precompile.config.model import Matrix

__all__ = ["Cell", "cells_of", "this_cell"]


@dataclass(frozen=True)
class Cell:
    """What one wheel of a matrix is built with. `python`: as in "3.12"; `torch`: as in "2.13.0"."""

    python: str
    torch: str

    @property
    def name(self) -> str:
        """`cp312-torch2.13.0`."""
        return f"cp{self.python.replace('.', '')}-torch{self.torch}"


def cells_of(matrix: Matrix) -> list[Cell]:
    """Every Python with every torch, in the author's order."""
    return [Cell(python, torch) for python in matrix.python for torch in matrix.torch]


def this_cell(torch_version: str) -> Cell:
    """The cell of this process and of a torch; the local part of its version ("+cpu") does not count."""
    major, minor, *_ = sys.version_info
    return Cell(f"{major}.{minor}", Version(torch_version).public)
