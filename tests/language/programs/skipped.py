"""Functions that torch.compile skips, because a graph breaks in a loop of theirs, and what they call."""

import torch
from torch import nn


def say(*words):
    print(*words)


def step(x):
    return torch.sin(x) * 2 + 1


def loops(x):
    for number in range(3):
        x = step(x)
        say("step", number)
    return x


def calls_what_loops(x):
    return loops(x.cos()).tanh() + 1


def imports_in_its_loop(x):
    for number in range(2):
        from programs import imported_late

        x = imported_late.half(x)
        say("half", number)
    return x


class Block(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3


class Repeating(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        for number in range(2):
            x = self.block(x)
            say("block", number)
        return x


def inputs():
    return torch.linspace(-1, 2, 12).reshape(3, 4)


def samples():
    return [(inputs(),)]
