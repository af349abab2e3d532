"""Targets of every kind, for workloads that call them."""

import functools

from torch import nn


class Net(nn.Module):
    def __init__(self, depth=0):
        super().__init__()
        self.below = Net(depth - 1) if depth else None

    def forward(self, x, *, twice=False):
        x.add_(1)  # what a sample holds was copied before
        x = self.below(x) if self.below is not None else x
        return x * 2 if twice else x


class Special(Net):
    pass


class Plain:
    def method(self, x):
        return x + 1

    @classmethod
    def made(cls, x):
        return x

    @staticmethod
    def loose(x):
        return x


class Heir(Plain):
    pass


class Wrapping(Plain):
    """Its constructor wraps the object's own method."""

    def __init__(self):
        self.method = self._passing_on(self.method)

    def _passing_on(self, method):
        @functools.wraps(method)
        def passed_on(*args, **kwargs):
            return method(*args, **kwargs)

        return passed_on

    def method(self, x, /, y=None, *rest, scale=1.0, **more):
        return x * scale


def double(x):
    return x * 2
