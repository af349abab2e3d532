"""Functions that traced code calls: one it imported by name, one it reaches through this module."""

import torch


def squash(x):
    return torch.tanh(x)


def lift(x, by=1.0):
    return x + by
