"""Targets. Each says in a word what is special about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Reads an attribute of its own."""
    return x * scaled.scale  # type: ignore[attr-defined]


scaled.scale = 2.0  # type: ignore[attr-defined]


class Holder(nn.Module):
    """Took a target as a default argument when its module was imported."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor] = scaled) -> None:
        super().__init__()
        self.function = function


def scriptable(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    """What TorchScript takes."""
    y = x * factor
    if y.size(0) > 2:
        return y + 1
    return y - 1


def inner(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


def outer(x: torch.Tensor) -> torch.Tensor:
    """Calls what somebody else may compile."""
    return inner(x) * 2


def down(x: torch.Tensor, depth: int) -> torch.Tensor:
    """Calls itself."""
    if depth == 0:
        return x
    return down(x, depth - 1) + 1


def keywords(x: torch.Tensor, *rest: float, scale: float = 2.0, **named: float) -> torch.Tensor:
    """Takes arguments in every way."""
    return x * scale + sum(rest) + sum(named.values())


def shifting(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + by

    return shifted


shifted = shifting(3.0)


def doubling(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrapper(*args: Any, **kwargs: Any) -> torch.Tensor:
        return function(*args, **kwargs) * 2

    return wrapper


@doubling
def decorated(x: torch.Tensor) -> torch.Tensor:
    """Stands behind a wrapper that says nothing of it."""
    return x + 1


class Base(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.weight)


class Derived(Base):
    """Has its forward from its base."""


class Tools:
    factor = 2.0

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x + cls.factor


class Inheriting(Tools):
    """Has its method from its base."""


def helped(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x) * 2


def broken(x: torch.Tensor) -> torch.Tensor:
    """Has a graph break, and calls what is compiled apart because of another."""
    y = x + 1
    print("between")
    z = talking(y)
    return z * 2


def talking(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) + 1
    print("talking")
    return torch.cos(y)


class Strict(nn.Module):
    """Has cells, for a policy on misses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def nested(y: torch.Tensor) -> torch.Tensor:
            return y + x

        return nested(x / 2)


class Jitted(nn.Module):
    """Has super() in its forward, for a policy on misses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(super().__repr__()[:3])


class Table(nn.Module):
    """Looks up rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.rows(ids).sum(-1)


class LongTable(Table):
    """A target that has its `forward` from another one."""


def samples() -> Iterator[tuple[torch.Tensor]]:
    yield (torch.arange(4.0),)


def depths() -> Iterator[tuple[torch.Tensor, int]]:
    yield torch.arange(4.0), 2


def in_every_way() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    yield (torch.arange(4.0), 1.0), {"scale": 3.0, "more": 2.0}


def ids() -> Iterator[tuple[torch.Tensor]]:
    yield (torch.tensor([[1, 2, 3]]),)
