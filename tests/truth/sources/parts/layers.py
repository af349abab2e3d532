"""Classes that the specimens inherit from or hold."""

import torch
from torch import nn

from parts.arithmetic import shifted


class Gate(nn.Module):
    slope = 0.75

    def __init__(self, width, limit=2.0):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.limit = limit

    def forward(self, x):
        return torch.sigmoid(self.linear(x) * self.slope).clamp(max=self.limit) * x


class Scaling:
    """A mixin: it is asked before the class it is mixed into."""

    gain = 1.25

    def scale(self, x):
        return x * self.gain

    def finish(self, x):
        return self.scale(x) - 0.5


class Base:
    bias = 0.125

    def prepare(self, x):
        return shifted(x) + self.bias

    def finish(self, x):
        return x * 2.0

    def run(self, x):
        return self.finish(self.prepare(x))


class Clamped:
    """A descriptor: what is stored is never above its top."""

    top = 1.5

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return min(getattr(instance, self.name), self.top)

    def __set__(self, instance, value):
        setattr(instance, self.name, value)
