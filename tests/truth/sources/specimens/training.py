"""Programs whose gradients count."""

import torch
from parts.layers import Gate
from torch import nn


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate(4)
        self.frozen = nn.Parameter(torch.full((4,), 1.5), requires_grad=False)

    def forward(self, x):
        return self.gate(x).square().mean(dim=-1) * self.frozen.sum()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2.0
        return x * ctx.factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * 1.5


class OwnGradient(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x):
        return Doubled.apply(x * self.weight) + 1.0


class Detached(nn.Module):
    rate = 0.25

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.norm(self.linear(x))
        return y * self.rate - y.detach() * 0.5


PROGRAMS = [
    {"target": "Trained", "samples": "rows", "mode": "train"},
    {"target": "OwnGradient", "samples": "rows", "mode": "train"},
    {"target": "Detached", "samples": "rows", "mode": "train"},
]
