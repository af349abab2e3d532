"""Functions that go on after a graph break."""

from __future__ import annotations

from collections.abc import Iterator

import torch
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


class Held:
    """Its constructor has an operation in one call, and none in the other; the break is in both."""

    def __init__(self, *tensors: Tensor) -> None:
        self.first = tensors[0] if len(tensors) == 1 else tensors[0] + tensors[1]
        graph_break()
        self.count = len(tensors)


def held(x: Tensor) -> Tensor:
    both, one = Held(x, x), Held(x)
    return both.first * both.count + one.first * one.count


class Counter:
    def __init__(self) -> None:
        self.count = 0


def counted(a: Counter, b: Counter, x: Tensor) -> Tensor:
    """Before the break there is no operation: what is written to one object is not read of the other."""
    a.count += 1
    count = b.count
    graph_break()
    return x * count


def two_counters() -> Iterator[tuple[Counter, Counter, Tensor]]:
    yield Counter(), Counter(), torch.ones(2, 4)
