"""The inputs this package is compiled for."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["batches"]


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Arguments of MiniLM.forward: a lone query, and a batch of lines with padding."""
    for batch, sequence in ((1, 9), (5, 21)):
        input_ids = torch.randint(1000, 2000, (batch, sequence), generator=torch.Generator().manual_seed(0))
        attention_mask = torch.ones_like(input_ids)
        attention_mask[1:, sequence // 2 :] = 0
        yield input_ids, attention_mask
