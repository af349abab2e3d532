"""Modules put together in the ways that models are."""

import torch
from torch import nn
from torch.nn import functional


class Mixed(nn.Module):
    """Lists and dicts of modules, a tied weight, hooks, a parametrized module, a property."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.LayerNorm(4)})
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.blocks[0].weight
        self.blocks[1].register_forward_hook(doubled)
        self.blocks[2].register_forward_pre_hook(halved)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.register_buffer("offset", torch.ones(4))

    @property
    def shift(self):
        return self.offset * 2

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        for name in ("a", "b"):
            x = self.named[name](x)
        return self.tied(self.normed(x)) + self.shift


def halved(module, args):
    return (args[0] / 2,)


def doubled(module, args, output):
    return output * 2


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)))) * self.frozen


class Dropping(nn.Module):
    """Draws random numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return functional.dropout(self.layer(x), 0.5)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, batch_first=True)
        self.gru = nn.GRU(4, 4, batch_first=True)
        self.rnn = nn.RNN(4, 2, batch_first=True)

    def forward(self, x):
        x, (hidden, cell) = self.lstm(x)
        x, last = self.gru(x)
        return self.rnn(x)[0], hidden, cell, last


def made(cls):
    torch.manual_seed(0)
    return cls()


def mixed():
    return made(Mixed)


def trained():
    return made(Trained).train()


def dropping():
    return made(Dropping).train()


def recurrent():
    return made(Recurrent)


def sequences():
    return [(torch.linspace(-1, 2, 24).reshape(2, 3, 4),)]


def inputs():
    # Not evenly spaced: normalized, the middle row would be zero but for rounding, where relu has its kink.
    return torch.linspace(-1, 2, 12).exp().reshape(3, 4)


def samples():
    return [(inputs(),)]


def activations():
    """What another layer has made."""
    return [(inputs().requires_grad_(),)]
