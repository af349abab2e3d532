"""Methods as targets, of a class that is no module."""

import torch


class Tool:
    bias = 4.0

    def __init__(self, factor=3.0):
        self.factor = factor

    def apply(self, x):
        return torch.sin(x) * self.factor

    @staticmethod
    def halve(x):
        return torch.cos(x) / 2

    @classmethod
    def shifted(cls, x):
        return torch.exp(x) + cls.bias
