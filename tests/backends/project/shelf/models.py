import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.inner.weight.exp().sum()


def samples():
    return [(torch.randn(3, 8),)]
