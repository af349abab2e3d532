"""256 samples that need an entry each."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[int, Tensor], dict[str, object]]]:
    for kind in range(256):
        yield (kind, torch.zeros(4)), {}
