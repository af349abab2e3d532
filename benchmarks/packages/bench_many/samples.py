"""256 samples that need an entry each: the rank and the size of every dimension are fixed."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor], dict[str, object]]]:
    for shape in product((2, 3, 4, 5), repeat=4):
        yield (torch.zeros(shape),), {}
