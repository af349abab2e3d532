"""The cells of a matrix: one minor version of Python and one torch each, whole or in shards."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from packaging.version import Version

from hatch_precompile.config.model import Matrix
from hatch_precompile.errors import ConfigError

__all__ = ["Cell", "Shard", "cells_of", "this_cell"]


_T = TypeVar("_T")


@dataclass(frozen=True)
class Shard:
    """Some of the entrypoints. `number`: from 1 to `of`."""

    number: int
    of: int

    def part(self, entrypoints: Sequence[_T]) -> Sequence[_T]:
        """The shard's entrypoints: each `of`-th one of a configuration, as neighbours are often alike."""
        return entrypoints[self.number - 1 :: self.of]

    @classmethod
    def read(cls, text: str) -> Shard:
        """From `1of4`. Raises ConfigError for anything else."""
        found = re.fullmatch(r"([1-9][0-9]{0,4})of([1-9][0-9]{0,4})", text)
        if found is None or int(found[1]) > int(found[2]):
            raise ConfigError(f'expected a shard such as "1of4", got "{text}"')
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Cell:
    """What one wheel of a matrix is built with.

    python: as in "3.12"; torch: as in "2.13.0"; shard: with which of the entrypoints, None for all; cuda: of
    a wheel for GPUs, for which CUDA its torch is built, as in "cu130".
    """

    python: str
    torch: str
    shard: Shard | None = None
    cuda: str = ""

    @property
    def versions(self) -> str:
        """`cp312-torch2.13.0`, also of a shard; `cp312-torch2.13.0-cu130`."""
        name = f"cp{self.python.replace('.', '')}-torch{self.torch}"
        return f"{name}-{self.cuda}" if self.cuda else name

    @property
    def name(self) -> str:
        """The same, and of a shard `cp312-torch2.13.0-1of4`."""
        return f"{self.versions}-{self.shard.number}of{self.shard.of}" if self.shard else self.versions


def cells_of(matrix: Matrix, shards: int = 1) -> list[Cell]:
    """Every Python with every torch, and every CUDA, in the author's order, each in so many shards."""
    parts = [Shard(number, shards) for number in range(1, shards + 1)] if shards > 1 else [None]
    versions = product(matrix.python, matrix.torch, matrix.cuda or ("",))
    return [Cell(python, torch, part, cuda) for python, torch, cuda in versions for part in parts]


def this_cell(torch_version: str, cuda: str | None = None) -> Cell:
    """The cell of this process and of a torch; the local part of its version ("+cpu") does not count.

    cuda: of a wheel for GPUs, `torch.version.cuda`
    """
    major, minor, *_ = sys.version_info
    build = f"cu{cuda.replace('.', '')}" if cuda else ""
    return Cell(f"{major}.{minor}", Version(torch_version).public, cuda=build)
