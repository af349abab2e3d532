"""Modules: nested, listed, normalised, hooked, with buffers that change, with tables of activations."""

import functools
import os
from dataclasses import dataclass

import torch
from parts.layers import Gate
from torch import nn
from torch.nn import functional

ACTIVATIONS = {"relu": nn.ReLU, "gelu": functools.partial(nn.GELU, approximate="tanh")}


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def indices():
    return [(torch.tensor([[0, 3, 1], [2, 2, 4]]),)]


def images():
    return [(torch.linspace(-1, 2, 48).reshape(1, 3, 4, 4),)]


class Linear(nn.Module):
    scale = 0.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = 0.25

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale + self.shift


class Block(nn.Module):
    def __init__(self, width=4, activation="gelu"):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 8), ACTIVATIONS[activation](), nn.Linear(8, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(activation=name) for name in ("gelu", "relu"))

    def forward(self, x, skip=0):
        for number, block in enumerate(self.blocks):
            if number >= skip:
                x = block(x) * (number + 1)
        return x


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
        self.order = ["b", "a"]

    def forward(self, x):
        return {name: self.heads[name](x) for name in self.order}


class Normed(nn.LayerNorm):
    """Has a class of its own, and nothing else of its own."""


class Wrapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Normed(4)
        self.gate = Gate(4)

    def forward(self, x):
        return self.gate(self.norm(x)) - 0.5


class Counting(nn.Module):
    """Changes buffers of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.decay = 0.75

    def forward(self, x):
        self.mean.mul_(self.decay).add_(x.mean(dim=0) * (1 - self.decay))
        self.calls += 1
        return x - self.mean


class Batched(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x):
        y = self.norm(self.convolution(x))
        return functional.max_pool2d(y, 2).flatten(1)


class Hooked(nn.Module):
    """A hook that it registered itself."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.register_forward_hook(self.double)

    @staticmethod
    def double(module, inputs, output):
        return output * 2.0

    def forward(self, x):
        return self.linear(x) + 1.0


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 4, padding_idx=0)
        self.scale = 4**0.5

    def forward(self, ids):
        return self.words(ids) * self.scale


@dataclass
class Settings:
    heads: int = 2
    width: int = 4
    causal: bool = True
    dropout: float = 0.0


class Attention(nn.Module):
    def __init__(self, settings=None):
        super().__init__()
        self.settings = settings or Settings()
        self.projection = nn.Linear(self.settings.width, 3 * self.settings.width)

    def forward(self, x):
        width, heads = self.settings.width, self.settings.heads
        x = x.reshape(1, -1, width)
        parts = self.projection(x).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.settings.causal)
        return y.transpose(1, 2).flatten(2)


class Dispatching(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Tanh(), nn.Identity()])
        self.extra = 0.5

    def forward(self, x):
        for part in self.parts:
            if isinstance(part, nn.Linear):
                x = part(x) * 2.0
            elif hasattr(part, "inplace"):
                x = x + 3.0
            else:
                x = part(x)
        if hasattr(self, "extra"):
            x = x + self.extra
        return x


class Parent(nn.Module):
    gain = 1.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def activate(self, x):
        return torch.tanh(x)

    def forward(self, x):
        return self.activate(self.linear(x)) * self.gain


class Overriding(Parent):
    gain = 2.5

    def forward(self, x):
        return super().forward(x) + 0.25


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


class Helped(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16).reshape(4, 4))
        self.eps = 1e-3

    def normalise(self, x, power=2):
        return x / (x.pow(power).mean(-1, keepdim=True) + self.eps).sqrt()

    def forward(self, x):
        return functional.linear(self.normalise(x), self.weight)


class FromEnvironment(nn.Module):
    """Reads the environment when it is made."""

    def __init__(self):
        super().__init__()
        self.factor = float(os.environ.get("SPECIMENS_FACTOR", "1.5"))

    def forward(self, x):
        return x * self.factor


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        state = torch.zeros(1, 4)
        for step in range(x.shape[0]):
            state = self.cell(x[step : step + 1], state)
        return state


PROGRAMS = [
    {"target": "Linear", "samples": "rows"},
    {"target": "Block", "samples": "rows"},
    {"target": "Listed", "samples": "rows"},
    {"target": "Named", "samples": "rows"},
    {"target": "Wrapping", "samples": "rows"},
    {"target": "Counting", "samples": "rows"},
    {"target": "Batched", "samples": "images"},
    {"target": "Hooked", "samples": "rows"},
    {"target": "Embedding", "samples": "indices"},
    {"target": "Attention", "samples": "rows"},
    {"target": "Dispatching", "samples": "rows"},
    {"target": "Overriding", "samples": "rows"},
    {"target": "Tied", "samples": "rows"},
    {"target": "Helped", "samples": "rows"},
    {"target": "FromEnvironment", "samples": "rows"},
    {"target": "Recurrent", "samples": "rows"},
]
