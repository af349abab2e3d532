import torch
import torch.nn as nn
from torch.nn import Module as Renamed

__all__ = ["Renamed", "Root", "make_root", "nn", "torch"]


class Root(nn.Module):
    def __init__(self, width, *more, deep=False, **rest): ...

    def forward(self, x: torch.Tensor, *rest, **more): ...


class Left(Root):
    pass


class Right(Root):
    def forward(self, right): ...


def make_root():
    return Root(8)
