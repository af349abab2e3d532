"""Module classes as targets."""

import torch
from torch import nn

from zoo import helpers
from zoo.helpers import squash


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("offset", torch.full((width,), 0.5))

    def mix(self, x):
        return self.linear(x) + self.offset

    def forward(self, x):
        return self.dropout(torch.relu(self.mix(x)))


class Mlp(nn.Module):
    gain = 1.5

    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.block = Block(width)
        self.scale = 2.0

    def forward(self, x, shift=None):
        x = helpers.lift(squash(self.block(self.first(x)))) * self.scale * self.gain
        return x if shift is None else x + shift


class Chatty(nn.Module):
    """A graph break in the middle: two frames, two graphs."""

    def forward(self, x):
        x = torch.sin(x)
        print("half way")
        return torch.cos(x) + 1


class Jitted(nn.Module):
    def forward(self, x):
        return torch.sin(x) - 1


class OnAsking(nn.Module):
    def forward(self, x):
        return torch.cos(x) * 3
