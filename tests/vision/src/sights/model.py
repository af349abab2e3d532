"""Small convolution nets, of the kinds that people have, for pictures of any declared size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def convolution(before: int, after: int, kernel: int = 3, **more: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=False, **more),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class Residual(nn.Module):
    """Two blocks of a ResNet, the second half as large, and an average. Sides of 8 pixels become one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 16, 7, stride=2), nn.MaxPool2d(3, 2, 1))
        self.first = nn.Sequential(convolution(16, 16), nn.Conv2d(16, 16, 3, padding=1))
        self.second = nn.Sequential(convolution(16, 32, stride=2), nn.Conv2d(32, 32, 3, padding=1))
        self.short = nn.Conv2d(16, 32, 1, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x + self.first(x))
        x = F.relu(self.short(x) + self.second(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Halves(nn.Module):
    """A U-Net that goes down twice, and up to the sizes that were there: for sides of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([convolution(3, 8), convolution(8, 16)])
        self.middle = convolution(16, 16)
        self.up = nn.ModuleList([convolution(32, 8), convolution(16, 8)])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for step in self.down:
            seen.append(step(x))
            x = F.max_pool2d(seen[-1], 2)
        x = self.middle(x)
        for step in self.up:
            before = seen.pop()
            x = F.interpolate(x, size=before.shape[-2:], mode="bilinear", align_corners=False)
            x = step(torch.cat([before, x], 1))
        return self.out(x)


class Depthwise(nn.Module):
    """An inverted residual of a MobileNet, with its squeeze and excitation, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = convolution(3, 24, 1)
        self.depth = convolution(24, 24, groups=24, stride=2)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.project = nn.Conv2d(24, 8, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depth(self.expand(x))
        weight = self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True))))
        return self.project(x * F.hardsigmoid(weight))


class Decoder(nn.Module):
    """Transposed convolutions and a pixel shuffle: what makes a picture of a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 16, 4, stride=2, padding=1)
        self.more = nn.ConvTranspose2d(16, 12, 3, stride=2, output_padding=1, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.shuffle(self.more(F.gelu(self.up(x)))))


class Waves(nn.Module):
    """Convolutions over a signal, and the features of what is left of it as a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(2, 8, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(8, 8, 3, padding=2, dilation=2, groups=2),
            nn.GroupNorm(2, 8),
        )
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(x).transpose(1, 2))


def _made(net: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    made = net().eval()
    for parameter in made.parameters():
        parameter.requires_grad_(False)
    return made.to(dtype)


def residual() -> nn.Module:
    return _made(Residual)


def halves() -> nn.Module:
    return _made(Halves)


def depthwise() -> nn.Module:
    return _made(Depthwise, torch.bfloat16)


def decoder() -> nn.Module:
    return _made(Decoder)


def waves() -> nn.Module:
    return _made(Waves)


def pictures() -> Iterator[tuple[Tensor]]:
    yield (torch.randn(2, 3, 32, 40),)


def rounded_pictures() -> Iterator[tuple[Tensor]]:
    yield (torch.randn(2, 3, 32, 40).bfloat16(),)


def small_pictures() -> Iterator[tuple[Tensor]]:
    yield (torch.randn(2, 4, 16, 20),)


def one_picture() -> Iterator[tuple[Tensor]]:
    yield (torch.randn(1, 3, 32, 40),)


def signals() -> Iterator[tuple[Tensor]]:
    yield (torch.randn(2, 2, 64),)
