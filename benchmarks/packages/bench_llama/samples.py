"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

from bench_llama.model import HEADS, LAYERS, LENGTH, SIZE

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor, ...], dict[str, object]]]:
    """The hundredth token of a text."""
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, LAYERS, 1, HEADS, LENGTH, SIZE, generator=generator)
    yield (torch.tensor([[100]]), torch.tensor(99), keys, values), {}
