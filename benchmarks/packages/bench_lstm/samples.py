"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

from bench_lstm.model import WIDTH

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor], dict[str, object]]]:
    """One sequence of 64 steps."""
    yield (torch.randn(1, 64, WIDTH, generator=torch.Generator().manual_seed(0)),), {}
