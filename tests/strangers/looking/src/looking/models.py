import functools

import torch

from .things import Hostile, Pairs


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


class Net(torch.nn.Module):
    """Blocks that are the same, whose checks are one function; and a constructor that runs the model."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = None
        self.scale = 2.0
        self.hostile = [Hostile()]
        self.pairs = {"pairs": Pairs((1, 2))}
        with torch.no_grad():
            width = self.eval()(torch.zeros(1, 8)).shape[-1]
        self.head = torch.nn.Linear(width, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x) * self.scale


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) * 2


class Derived(Base):
    """Its constructor wraps the object's own `forward`."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.forward = self._counted(self.forward)

    def _counted(self, forward):
        @functools.wraps(forward)
        def counted(x):
            self.calls += 1
            return forward(x)

        return counted


def samples():
    yield (torch.ones(4, 8),)
