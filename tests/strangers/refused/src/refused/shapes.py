"""What is done with shapes and axes, before a break of the graph and by einops."""

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
