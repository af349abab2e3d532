"""One model of each kind: with gradients and without, with fixed weights, functions."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


def activation(x: torch.Tensor) -> torch.Tensor:
    """A helper that is traced with the model."""
    return functional.gelu(x, approximate="tanh") * 1.5


class Classifier(nn.Module):
    """Two layers.

    >>> 1 + 1
    2
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Classify rows.

        >>> 2 + 2
        4
        """
        x = self.drop(activation(self.norm(self.first(x))))
        return self.last(x) * scale


class Pictures(nn.Module):
    """Convolutions with a batch norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(torch.relu(self.norm(self.conv1(x))))
        return self.head(y.mean((2, 3)))


def normalize(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Rows of length 1."""
    return x / (x.norm(2.0, dim=-1, keepdim=True) + eps)


@dataclass
class Summary:
    """What is known of a batch."""

    mean: torch.Tensor
    rows: int


def summarize(x: torch.Tensor) -> Summary:
    return Summary(x.mean(0) * 2, x.shape[0])
