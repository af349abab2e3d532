"""The module and the class have one name, which in the package means the class."""

from torch import nn


class Encoder(nn.Module):
    def forward(self, encoded): ...
