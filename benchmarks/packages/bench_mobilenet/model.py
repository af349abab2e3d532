"""MobileNetV3-Large, as table 1 of "Searching for MobileNetV3" has it, in plain torch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["MobileNet", "make"]

# Of each block: the size of its filters, its wider and its own channels, whether channels are weighed,
# whether hard swish takes the place of relu, and by how many pixels it moves.
_BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def _convolution(inner: int, outer: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outer, eps=1e-3))


class _Block(nn.Module):
    def __init__(
        self, channels: int, size: int, wide: int, outer: int, weighed: bool, swish: bool, stride: int
    ) -> None:
        super().__init__()
        self.expand = _convolution(channels, wide, 1) if wide != channels else nn.Identity()
        self.each = _convolution(wide, wide, size, stride, groups=wide)
        few = max(8, (wide // 4 + 4) // 8 * 8)
        few += 8 if few < 0.9 * (wide // 4) else 0
        narrow, widen = nn.Conv2d(wide, few, 1), nn.Conv2d(few, wide, 1)
        self.weigh = nn.Sequential(narrow, nn.ReLU(), widen, nn.Hardsigmoid()) if weighed else None
        self.project = _convolution(wide, outer, 1)
        self.follow = F.hardswish if swish else F.relu
        self.residual = stride == 1 and channels == outer

    def forward(self, x: Tensor) -> Tensor:
        y = x if isinstance(self.expand, nn.Identity) else self.follow(self.expand(x))
        y = self.follow(self.each(y))
        if self.weigh is not None:
            y = y * self.weigh(y.mean((2, 3), keepdim=True))
        y = self.project(y)
        return y + x if self.residual else y


class MobileNet(nn.Module):
    """Pictures, float32 [n, 3, height, width], to float32 [n, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(3, 16, 3, 2)
        outer = (16, *(block[2] for block in _BLOCKS))
        self.blocks = nn.Sequential(
            *(_Block(channels, *block) for channels, block in zip(outer, _BLOCKS, strict=False))
        )
        self.last = _convolution(160, 960, 1)
        self.wide, self.classes = nn.Linear(960, 1280), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.last(self.blocks(F.hardswish(self.stem(x)))))
        result: Tensor = self.classes(F.hardswish(self.wide(y.mean((2, 3)))))
        return result


def make() -> nn.Module:
    torch.manual_seed(0)
    return MobileNet().eval()
