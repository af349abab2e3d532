"""A package whose author has put torch.compile into it already, in each of the ways that there are."""

import torch
from torch import nn


@torch.compile
def doubled_sine(x):
    return x.sin() * 2


@torch.compile(dynamic=True, fullgraph=True)
def shifted(x):
    return x + 3


@torch.compile
def halved(x):
    return x / 2


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.compile(mode="reduce-overhead")
    def forward(self, x):
        return self.linear(x).relu()


class Compiling(nn.Module):
    """Compiles itself, has a part that is compiled, a method that is, and calls a function that is."""

    def __init__(self):
        super().__init__()
        self.part = torch.compile(nn.Linear(4, 4))
        self.compile()

    @torch.compile
    def squeezed(self, x):
        return x.tanh()

    def forward(self, x):
        return shifted(self.squeezed(self.part(x)))


def calls_it_in_a_loop(x):
    for _ in range(2):
        x = halved(x)
        print(end="")
    return x


def decorated():
    torch.manual_seed(1)
    return Decorated()


def compiling():
    torch.manual_seed(2)
    return Compiling()


def inputs():
    return torch.linspace(-1, 2, 12).reshape(3, 4)


def samples():
    return [(inputs(),)]
