"""Linear layers of a few sizes."""

import torch
from torch import nn


class Square(nn.Linear):
    def __init__(self) -> None:
        super().__init__(384, 384)


class Up(nn.Linear):
    def __init__(self) -> None:
        super().__init__(768, 3072)


class Down(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3072, 768)


class SquareBfloat16(Square):
    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()


class UpBfloat16(Up):
    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()


class DownBfloat16(Down):
    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()


LAYERS = (Square, Up, Down, SquareBfloat16, UpBfloat16, DownBfloat16)
ROWS = (1, 16, 64, 128, 512)


def inputs(layer: nn.Linear) -> list[torch.Tensor]:
    return [torch.randn(rows, layer.in_features, dtype=layer.weight.dtype) for rows in ROWS]
