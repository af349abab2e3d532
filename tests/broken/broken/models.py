import functools
import os
import random
import threading
import time
import types

import torch
from torch import nn

CONSTANT = 3
Linear = nn.Linear


class Needy(nn.Module):
    def __init__(self, width):
        super().__init__()


class Plain:
    def method(self, x):
        return x + 1


class Pretended:
    """As wrapt's wrappers: it says that it is a function."""

    __class__ = property(lambda self: types.FunctionType)

    def __call__(self, *args):
        return torch.sin(args[-1])


pretended = Pretended()


class Odd:
    """Methods that are functions, and some that are none."""

    alias = Plain.method
    static = staticmethod(Plain.method)
    partial = functools.partialmethod(Plain.method)
    wrapper = pretended
    wrapper_in_static = staticmethod(pretended)
    cached = functools.lru_cache(Plain.method)
    dispatched = functools.singledispatchmethod(Plain.method)

    @classmethod
    def of_class(cls, x):
        return x + 1

    @property
    def looked_up(self):
        return self.alias


class OddForward(nn.Module):
    forward = property(lambda self: torch.sin)


class Fine(nn.Module):
    def forward(self, x, scale=1.0):
        return x * scale


class Locked(nn.Module):
    """Nothing is wrong with it, but it cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x):
        return x * 2


class Local(nn.Module):
    """The trace depends on the class of an attribute, and that class has no name."""

    def __init__(self):
        super().__init__()

        class Settings:
            scale = 2.0

        self.settings = Settings()

    def forward(self, x):
        return x * self.settings.scale


class Made(nn.Module):
    """The trace goes through a function that is in no source file."""

    def __init__(self):
        super().__init__()
        self.act = eval("lambda x: torch.relu(x)", {"torch": torch})

    def forward(self, x):
        return self.act(x) + 1


def fine(x):
    return torch.sin(x) + 1


async def later(x):
    return torch.sin(x) + 1


def piecewise(x):
    yield torch.sin(x) + 1


def two_faced(x):
    return x + (2 if torch.compiler.is_compiling() else 1)


def wants_a_compiler(x):
    if not torch.compiler.is_compiling():
        raise ValueError("slow")
    return x + 1


def looping(x):
    """A graph break in a loop: dynamo gives up on the frame."""
    for _ in range(2):
        x = torch.sin(x)
        print("here")
    return x


def printing(x):
    """A graph break: what is before it and what is after it are graphs."""
    y = torch.sin(x)
    print("here")
    return torch.cos(y)


def deciding(x):
    """A graph break in a loop, at a number that only data tells."""
    for _ in range(2):
        x = x + x.sum().item()
    return x


def calling(x):
    for _ in range(2):
        x = fine(x)
        print("here")
    return x


def otherwise(x):
    """Compiled by the package itself, and not for inductor. Made here: dynamo is imported for it."""
    for _ in range(2):
        x = torch.compile(fine, backend="eager")(x)
        print("here")
    return x


def untraceable(x):
    return [1, 2]


def hang(x):
    time.sleep(600)


def die(x):
    os._exit(42)


def drawing(x):
    drawn = random.random() + 1.0
    y = x * drawn
    torch._dynamo.graph_break()
    return y / drawn


def one():
    return [(torch.ones(6),)]


def none():
    return []


def bare():
    return [torch.ones(6)]


def failing():
    raise LookupError("no data")


def misfit():
    return [(torch.ones(6), torch.ones(5))]


def uncopied():
    return [((x for x in ()),)]


def unlike(x):
    return x + 1 if torch.compiler.is_compiling() else x + 2


def stranger():
    return [{"y": torch.ones(6)}]


def make_other():
    return nn.Linear(1, 1)


def make_none():
    raise RuntimeError("no weights")
