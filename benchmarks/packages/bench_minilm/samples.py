"""The one set of inputs that is compiled and measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["samples"]


def samples() -> Iterator[tuple[tuple[Tensor, Tensor], dict[str, object]]]:
    """Four sentences of up to 32 tokens."""
    input_ids = torch.randint(1000, 2000, (4, 32), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1:, 20:] = 0
    yield (input_ids, attention_mask), {}
