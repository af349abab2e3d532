"""Inference methods as packages write them, and a named tuple that is made in forward."""

from collections import namedtuple

import torch


class Pair(torch.nn.Module):
    def forward(self, x):
        both = namedtuple("Both", ["one", "other"])(x + 1, x * 2)
        return both.one * both.other


@torch.autocast("cpu", dtype=torch.bfloat16)
def squared(x):
    return x @ x.transpose(-1, -2)


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.linear(x)

    @torch.no_grad()
    def predict(self, x):
        if self.training:
            self.eval()
        return self(x) + 1

    @torch.inference_mode()
    def infer(self, x):
        return self(x) - 1


class Derived(Base):
    pass


class Graded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    @torch.enable_grad()
    def forward(self, x):
        return self.linear(x)


def samples():
    return [(torch.randn(4, 5, 6),)]
