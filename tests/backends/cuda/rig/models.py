from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Any) -> Any:
        return torch.softmax(x + self.down(nn.functional.gelu(self.up(self.norm(x)))), -1)


def batches() -> Iterator[Any]:
    yield (torch.randn(8, 64),)


def scaled(x: Any, y: Any) -> Any:
    return torch.softmax(x * y.sin() + torch.tensor([1.0, 2.0, 3.0, 4.0] * 16, device=x.device), -1)


def pairs() -> Iterator[Any]:
    yield (torch.randn(8, 64), torch.randn(8, 64))


def ways(x: Any, way: str) -> Any:
    """Ways to speak of a device."""
    if way == "beside":
        return x + torch.zeros(64, device=x.device)
    if way == "the current one":
        return x * 2, torch.zeros(64, device="cuda")
    if way == "its number":
        return x + x.device.index
    if way == "returned":
        return x + 1, x.device
    if way == "its capability":
        return x + torch.cuda.get_device_capability()[0]
    return x


WAYS = ("beside", "the current one", "its number", "returned", "its capability")


def every_way() -> Iterator[Any]:
    for way in WAYS:
        yield torch.randn(8, 64), way


def doubled(x: Any) -> Any:
    x.mul_(2)
    return x + 1


def there_already() -> Iterator[Any]:
    yield (torch.randn(8, 64).to("cuda"),)


class Vision(nn.Module):
    """What cuDNN and torch's own kernels do: convolutions, and their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.head((x + self.second(x)).mean((2, 3)))


def images() -> Iterator[Any]:
    yield (torch.randn(2, 3, 16, 16),)


class Attention(nn.Module):
    """A fused attention, and a sort behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Linear(64, 192)
        self.half()

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = self.mixing(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(0))
        return mixed.transpose(1, 2).reshape(batch, length, width).float().softmax(-1).topk(5, -1)


def texts() -> Iterator[Any]:
    yield (torch.randn(2, 32, 64).half(),)


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(self.layer(x)).sum()


def with_number(x: Any) -> Any:
    return x * x.sum().item()


def with_a_branch(x: Any) -> Any:
    return x + 1 if (x * 2).sum() > 0 else x - 1


@torch.library.custom_op("rig::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def without_meta(x: Any) -> Any:
    return twice(x) + 1


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(64, 64)

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]
