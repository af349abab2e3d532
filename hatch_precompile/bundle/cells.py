"""The cells of a merged wheel side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hatch_precompile.bundle.reader import FoundManifest, find_cells

__all__ = ["CellSize", "cells_beside"]


@dataclass(frozen=True)
class CellSize:
    """A cell, and what it weighs: its files, their bytes, and those of files that others have as well."""

    name: str
    files: int
    bytes: int
    shared_bytes: int


def cells_beside(wheel_or_package: str, bundle: FoundManifest) -> list[CellSize]:
    """All cells of a merged wheel's bundle, this one among them; none of a bundle that was built as it is."""
    if not bundle.merged:
        return []
    cells = [each for each in find_cells(wheel_or_package) if each.package == bundle.package]
    owners = Counter(digest for each in cells for digest in set(each.manifest.files.values()))
    return [
        CellSize(each.cell, len(each.sizes), sum(each.sizes.values()), _shared(each, owners))
        for each in cells
    ]


def _shared(cell: FoundManifest, owners: Counter[str]) -> int:
    files = cell.manifest.files.items()
    return sum(cell.sizes.get(path, 0) for path, digest in files if owners[digest] > 1)
