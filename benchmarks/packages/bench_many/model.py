"""The smallest graph there is, under as many guards as there are kinds."""

from torch import Tensor

__all__ = ["increment"]


def increment(kind: int, x: Tensor) -> Tensor:
    """The trace holds for one kind only, but the graph is the same: it is compiled once."""
    return x + 1 + (kind - kind)
