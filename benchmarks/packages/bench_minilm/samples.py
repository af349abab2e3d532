"""The sets of inputs that are compiled and measured, one at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples", "sixteen"]

Samples = Iterator[tuple[tuple[Tensor, Tensor], dict[str, object]]]


def samples() -> Samples:
    """One sentence of 16 tokens."""
    yield _sentences(1, 16), {}


def sixteen() -> Samples:
    """16 sentences of up to 32 tokens."""
    input_ids, attention_mask = _sentences(16, 32)
    attention_mask[1:, 20:] = 0
    yield (input_ids, attention_mask), {}


def _sentences(number: int, length: int) -> tuple[Tensor, Tensor]:
    input_ids = torch.randint(1000, 2000, (number, length), generator=torch.Generator().manual_seed(0))
    return input_ids, torch.ones_like(input_ids)
