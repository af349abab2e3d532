"""Functions that go on after a graph break."""

from __future__ import annotations

from torch import Tensor
from torch._dynamo import graph_break


def assigned_after(x: Tensor) -> Tensor:
    """A variable that an inner function has, too, gets another value after the break."""
    shift = x.sum()

    def shifted(y: Tensor) -> Tensor:
        return y + shift

    graph_break()
    shift = x.mean()
    return shifted(x)


def _scaled(x: Tensor, *factors: float) -> Tensor:
    graph_break()
    for factor in factors:
        x = x * factor
    return x


def scaled_or_not(x: Tensor) -> Tensor:
    """What goes on after the break has operations in one call, and none in the other."""
    return _scaled(x, 2.0, 3.0) + _scaled(x)
