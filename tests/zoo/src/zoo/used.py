"""A target without samples: a workload shows how it is used."""

import torch
from torch import nn


class Ripple(nn.Module):
    def __init__(self, depth=3.0):
        super().__init__()
        self.depth = depth

    def forward(self, x):
        return torch.sin(x) * self.depth


def workload():
    ripple = Ripple().eval()
    x = torch.randn(6)
    for _ in range(2):
        x = ripple(x)
    with torch.inference_mode(False):  # not this entrypoint's mode
        ripple(torch.randn(7))
    return Ripple().eval()(x)
