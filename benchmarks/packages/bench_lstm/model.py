"""An LSTM of two layers of 512."""

import torch
from torch import Tensor, nn

__all__ = ["WIDTH", "Sequence", "make"]

WIDTH = 512


class Sequence(nn.Module):
    """Float32 [n, steps, WIDTH] to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.lstm(x)[0]
        return result


def make() -> nn.Module:
    torch.manual_seed(0)
    return Sequence().eval()
