"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor], dict[str, object]]]:
    yield (torch.randn(8, 128),), {}
