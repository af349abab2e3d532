"""What the models are made of."""

import torch.nn as nn
from torch.nn import Module as Base


class Block(nn.Module):
    def forward(self, x):
        return x


class Bare(Base):
    """No forward of its own."""


class Stack(nn.Sequential):
    pass
