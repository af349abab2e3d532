"""Targets that are decorated, as methods for inference are."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def added(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, **kwargs) + 1

    return inner


@torch.autocast("cpu", dtype=torch.bfloat16)
@torch.no_grad
def multiplied(x: Tensor) -> Tensor:
    return x @ x.transpose(-1, -2)


@added
@torch.no_grad()
def around(x: Tensor) -> Tensor:
    return x * 3


@torch.enable_grad()
@added
def within(x: Tensor, *, scale: float = 2.0, **more: float) -> Tensor:
    return x * scale + sum(more.values())


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(6, 6)

    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        if self.training:
            self.eval()
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y + 1

    @staticmethod
    @torch.set_grad_enabled(False)
    def shifted(x: Tensor) -> Tensor:
        return x - 1


class Derived(Model):
    pass


@torch.no_grad()
def under_a_compile(x: Tensor) -> Tensor:
    return x * 2


def samples() -> Any:
    torch.manual_seed(1)
    yield (torch.randn(4, 6),)
