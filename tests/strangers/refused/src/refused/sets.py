"""What goes through sets of strings: every process has another order for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Kinds(nn.Module):
    """As text models that have two kinds of attention: a set of the instance, gone through in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = set(["full", "sliding", "full"])  # noqa: C405
        self.factors = {"full": 2.0, "sliding": 3.0}

    def forward(self, x: Tensor) -> Tensor:
        for kind in self.kinds:
            x = x * self.factors[kind] + 1
        return x


NAMES = {"sin", "exp", "cos"}


def by_names(x: Tensor) -> Tensor:
    """A global set of three."""
    return torch.stack([getattr(torch, name)(x) for name in [*NAMES]])


FIRST, SECOND = {"a", "bb", "ccc"}, {"dddd", "eeeee"}


def too_many(x: Tensor) -> Tensor:
    """Twelve orders."""
    for name in FIRST:
        x = x * len(name) + 1
    for name in SECOND:
        x = x * len(name) + 1
    return x


class Thing:
    pass


KNOWN = {"sin", "exp"}


def added(x: Tensor) -> Tensor:
    """The set that is gone through is another one than the program has, by an object that each call makes."""
    thing: Any = Thing()
    KNOWN.add(thing)
    for name in KNOWN:
        if isinstance(name, str):
            x = getattr(torch, name)(x)
    KNOWN.discard(thing)
    return x


def given(x: Tensor, names: set[str]) -> Tensor:
    for name in names:
        x = getattr(torch, name)(x)
    return x


def with_names() -> Iterator[tuple[Tensor, set[str]]]:
    yield torch.ones(2, 4), {"sin", "exp"}
