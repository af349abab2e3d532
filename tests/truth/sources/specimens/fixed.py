"""Weights that are fixed: convolutions and layers with what is fused behind them."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class SeesPictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Conv2d(16, 16, 1)

    def forward(self, picture):
        y = self.norm(self.first(picture)).relu()
        return F.relu(self.last(F.relu6(self.second(y))) + y)


class WeighsRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.many, self.few = nn.Linear(64, 64), nn.Linear(64, 256)
        self.norm = nn.BatchNorm1d(9000)

    def forward(self, x):
        y = F.hardsigmoid(self.many(x)) + x.relu()
        return self.few(F.relu(y[:3])).clamp(-1, 1), self.norm(x[:2].repeat(1, 141)[:, :9000])


def sees():
    torch.manual_seed(0)
    return SeesPictures().eval()


def weighs():
    torch.manual_seed(0)
    return WeighsRows().eval()


def pictures():
    return [(torch.linspace(-1, 2, 432).sin().reshape(1, 3, 12, 12),)]


def many_rows():
    # Nothing that torch computes in several threads: a child of a process that has waits for them for ever.
    return [((torch.arange(19200) % 29 - 9).float().div(3).reshape(300, 64),)]


PROGRAMS = [
    {"target": "SeesPictures", "instance": "sees", "samples": "pictures", "weights": "fixed"},
    {"target": "WeighsRows", "instance": "weighs", "samples": "many_rows", "weights": "fixed"},
]
