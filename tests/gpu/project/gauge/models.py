"""Of each kind of graph a model: attention, convolution, normalization, reductions, a decoder's block in
bfloat16, training, a constant, an input that is written to."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    """Two layers of a transformer, 128 wide."""

    width = 128

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(self.width) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixing = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = self.mixing(self.first(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class HalfEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.half()


class Decoder(nn.Module):
    """A block as of Llama's, in bfloat16: RMSNorm, rotary positions, attention, SiLU."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mixing, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.bfloat16()

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        size = width // self.heads
        rates = 1.0 / 10000 ** (torch.arange(0, size, 2, device=x.device) / size)
        angles = torch.arange(length, device=x.device)[:, None] * rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def rotated(value: Any) -> Any:
            even, odd = value[..., 0::2], value[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

        heads = self.mixing(self.first(x)).view(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = self.second(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.first(x)))
        return self.head((x + self.second(x)).mean((2, 3)))


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        return self.norm(functional.gelu(self.layer(x))).square().mean()


def reductions(x: Any) -> Any:
    return x.sum(), x.mean(0), x.argmax(1), torch.softmax(x, 1), x.cumsum(1), x.sort(1).values, x.var(1)


def scaled(x: Any, y: Any) -> Any:
    return torch.softmax(x * y.sin() + torch.tensor([1.0, 2.0, 3.0, 4.0] * 16, device=x.device), -1)


def doubled(x: Any) -> Any:
    x.mul_(2)
    return x + 1


def batches() -> Any:
    return [(torch.randn(8, 64, 128),)]


def half_batches() -> Any:
    return [(torch.randn(8, 64, 128).half(),)]


def tokens() -> Any:
    return [(torch.randn(2, 128, 256).bfloat16(),)]


def images() -> Any:
    return [(torch.randn(4, 3, 32, 32),)]


def rows() -> Any:
    return [(torch.randn(16, 64),)]


def wide_rows() -> Any:
    return [(torch.randn(512, 1000),)]


def pairs() -> Any:
    return [(torch.randn(8, 64), torch.randn(8, 64))]
