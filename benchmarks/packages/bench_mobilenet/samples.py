"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor], dict[str, object]]]:
    """One picture of 224 x 224."""
    yield (torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)),), {}
