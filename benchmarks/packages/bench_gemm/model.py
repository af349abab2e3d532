"""Linear layers of a few sizes."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def square() -> Layer:
    return Layer(384, 384)


def up() -> Layer:
    return Layer(768, 3072)


def down() -> Layer:
    return Layer(3072, 768)


def square_bfloat16() -> Layer:
    return Layer(384, 384, torch.bfloat16)


def up_bfloat16() -> Layer:
    return Layer(768, 3072, torch.bfloat16)


def down_bfloat16() -> Layer:
    return Layer(3072, 768, torch.bfloat16)


LAYERS = (square, up, down, square_bfloat16, up_bfloat16, down_bfloat16)
ROWS = (1, 16, 64, 128, 512)


def inputs(layer: nn.Linear) -> list[torch.Tensor]:
    return [torch.randn(rows, layer.in_features, dtype=layer.weight.dtype) for rows in ROWS]
