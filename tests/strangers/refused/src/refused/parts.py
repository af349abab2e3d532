"""What models are made of and make: named tuples, graph modules, hooks, modes of their own."""

import itertools
import random
from collections import namedtuple
from typing import Any

import torch
from torch import Tensor


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def doubled(module: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor:
    return output * 2


class Model(torch.nn.Module):
    """As LPIPS, a feature extractor of torchvision's, and a module with hooks that get keywords."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = torch.fx.symbolic_trace(Body())
        self.hooked = torch.nn.Linear(2, 2)
        self.hooked.register_forward_hook(doubled, with_kwargs=True)
        self.numbers = itertools.count(3)

    def forward(self, x: Tensor) -> Tensor:
        parts = namedtuple("parts", ["left", "right"])
        made = parts(self.features(x), x.sum())
        return self.hooked(made.left) * made.right


class Tracker(torch.nn.Module):
    """Its calls are inference, whoever makes them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.linear(x) + 1


def shaken(x: Tensor) -> Tensor:
    """Python's own random numbers, drawn before the graph."""
    return x * random.randint(2, 9) + random.random()


def halved(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=0.5)


def images() -> Any:
    torch.manual_seed(1)
    yield (torch.randn(1, 2, 8, 10),)


class Policy(torch.nn.Module):
    """Distributions made in forward, whose arguments torch.compile leaves unchecked."""

    def __init__(self) -> None:
        super().__init__()
        self.actions = torch.nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.distributions.Categorical(logits=self.actions(x))
        around = torch.distributions.Normal(x.mean(), x.exp().mean())
        return chosen.log_prob(chosen.probs.argmax(-1)) + chosen.entropy() + around.log_prob(x).sum(-1)
