"""What is done with shapes and axes, before a break of the graph and by einops."""

from collections.abc import Iterator

import einops
import torch
from torch import Tensor


def before_a_break(x: Tensor) -> Tensor:
    """The first graph has no tensor."""
    wide = torch.broadcast_shapes(x.shape, (2, 1, 1))
    rank = torch.empty(3, 4).dim()
    torch._dynamo.graph_break()
    return x.expand(wide) * rank


def queries_and_keys(x: Tensor) -> Tensor:
    """Two known axes in one group."""
    query, key, value = einops.rearrange(x, "b (k h d) -> k b h d", k=3, h=2)
    return einops.einsum(query, key, "b h d, b h e -> b d e") + value.sum()


def masked(x: Tensor) -> Tensor:
    """A mask of bytes, which eager code takes, and torch.compile does not."""
    return torch.where((x > 0).byte(), x, -x)


def filled(x: Tensor) -> Tensor:
    """Heads that are written to in place: torch.compile finds no view that leads back from them."""
    heads = (x + 1).view(1, 2, 2, 2).permute(0, 2, 1, 3)
    heads.masked_fill_(heads > 3, 0.0)
    return heads.sum(-1)


def eight() -> Iterator[tuple[Tensor]]:
    yield (torch.ones(2, 4),)
