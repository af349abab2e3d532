"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor], dict[str, object]]]:
    """One prompt of 64 tokens."""
    yield (torch.randint(1000, 2000, (1, 64), generator=torch.Generator().manual_seed(0)),), {}
