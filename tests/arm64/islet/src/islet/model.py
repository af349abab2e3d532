"""Small models, one of each kind that another processor may compute otherwise."""

from __future__ import annotations

import torch
from torch import nn


class Layers(nn.Module):
    """Convolutions and linear layers, with what inductor makes kernels of around them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.filters = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.first, self.second = nn.Linear(8 * 36, 40), nn.Linear(40, 10)

    def forward(self, x):
        h = torch.relu(self.norm(self.filters(x))).flatten(1)
        return torch.softmax(self.second(nn.functional.gelu(self.first(h))), -1)


class Fixed(Layers):
    """The same, whose weights do not change."""

    def forward(self, x):
        return Layers.forward(self, x) * 2


def layers():
    return Layers().eval()


def fixed():
    return Fixed().eval()


def of_layers():
    return [(torch.randn(4, 3, 6, 6),)]


class Narrow(nn.Module):
    """All of bfloat16."""

    kind = torch.bfloat16

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 16)
        self.to(self.kind)

    def forward(self, x):
        return torch.tanh(self.second(torch.sigmoid(self.first(x))) * 2)


def of_narrow():
    return [(torch.randn(8, 64, dtype=torch.bfloat16),)]


class Half(Narrow):
    """All of float16."""

    kind = torch.float16

    def forward(self, x):
        return Narrow.forward(self, x) * 3  # a sum would cancel, and tell how often eager code rounds


def of_half():
    return [(torch.randn(8, 64, dtype=torch.float16),)]


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = nn.Linear(24, 24), nn.LayerNorm(24)

    def forward(self, x):
        return (self.norm(self.layer(x)).exp() ** 2).mean()


def of_trained():
    return [(torch.randn(6, 24),)]


def integers(x, weight, scale):
    """A product of int8, and weights of int8 that are made numbers again."""
    exact = torch._int_mm(x, weight)
    return exact, (exact.float() * scale).to(torch.bfloat16), (x.float() @ (weight.float() * scale))


def of_integers():
    x, weight = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((32, 64), (64, 32)))
    return [(x, weight, torch.rand(32))]


def extremes(x):
    """Where the largest and the smallest are, the first of equal ones, and NaN before all."""
    rounded = torch.round(x)
    places = [each.argmax(d) for each in (x, rounded, rounded.long()) for d in (0, 1)]
    places += [each.argmin(d) for each in (x, rounded, rounded.long()) for d in (0, 1)]
    return *places, x.argmax(), rounded.argmin(), x.amax(0), x.amin(1)


def of_extremes():
    torch.manual_seed(0)
    with_nan = torch.randn(144, 144)
    with_nan[5, 7] = with_nan[99, 100] = torch.nan
    return [(torch.randn(144, 144),), (with_nan,)]


def collected(x, places):
    """Rows that are added up wherever they belong, by atomic operations."""
    return x.new_zeros(12, x.shape[1]).index_add(0, places, x.exp())


def of_collected():
    torch.manual_seed(0)
    return [(torch.randn(32, 17), torch.randint(0, 12, (32,)))]


def branched(x, how):
    """A guard on a dict, and a graph break."""
    y = (x * how["scale"]).cumsum(0)
    print(end="")
    return y.sort(dim=-1).values if how["sorted"] else y.flip(0)


def of_branched():
    x = torch.randn(9, 17)
    return [(x, {"scale": 2.0, "sorted": up}) for up in (True, False)]
