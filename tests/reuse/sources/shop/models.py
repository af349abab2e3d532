"""Each target has something of its own to take over: a library of another, a resumed frame, a backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 3


def samples() -> list[tuple[Tensor]]:
    return [(torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0)),)]


def counted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Two targets have the frame of this wrapper."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Tensor:
        return function(*args) + 1

    return wrapper


@counted
def doubled(x: Tensor) -> Tensor:
    return x * 2


@counted
def twice(x: Tensor) -> Tensor:
    return x * 2


def broken_in_two(x: Tensor) -> Tensor:
    y = x.cos()
    torch._dynamo.graph_break()
    return y + 1


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh()


class Scaled(nn.Module):
    """What it multiplies by is in no source that a call passes through: guards look at it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def scaled() -> Scaled:
    return Scaled(2.0)
