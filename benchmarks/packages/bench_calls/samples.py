"""One sample of each program, and sixty of the one with sixty entries."""

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["KINDS", "distilbert", "kinds", "layers", "mlp", "pointwise"]

KINDS = 60

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def mlp() -> Iterator[Sample]:
    yield (torch.randn(5, 16),), {}


def pointwise() -> Iterator[Sample]:
    yield (torch.randn(5, 16), torch.randn(5, 16)), {}


def distilbert() -> Iterator[Sample]:
    yield (torch.randint(0, 100, (3, 7)),), {}


def layers() -> Iterator[Sample]:
    yield (torch.randn(2, 32),), {}


def kinds() -> Iterator[Sample]:
    for kind in range(KINDS):
        yield (kind, torch.zeros(4)), {}
