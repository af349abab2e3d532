"""NaN and infinity go through layers and what follows them as in eager code, whoever computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from tests.support.hardware import about_x86
from tests.support.layers import compiled, variant

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")

INF, NAN = torch.inf, torch.nan
Epilogue = Callable[[torch.Tensor], torch.Tensor]
EPILOGUES: dict[str, Epilogue] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda y: F.hardtanh(y, -0.5, 0.25),
    "clamp": lambda y: y.clamp(-1, 1),
    "clamp_min": lambda y: y.clamp(min=0),
    "clamp_max": lambda y: y.clamp(max=0.5),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1),
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": F.elu,
    "relu_of_sum": lambda y: F.relu(y + y.flip(0, 1)),
    "sum": lambda y: y + y.flip(0, 1),
    "difference": lambda y: y - y.flip(0, 1),
    "relu_of_difference": lambda y: F.relu(y - y.flip(0, 1)),
}


def _picture(*args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(*args, **kwargs)


# A layer, and the shape of its input. Those of few rows are our own, those of many oneDNN's. Of one or three
# channels of bfloat16, oneDNN lets NaN spread to pixels beside it, in eager code, too.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "few_rows": (lambda: nn.Linear(128, 130), (3, 128)),
    "many_rows": (lambda: nn.Linear(64, 48), (400, 64)),
    "winograd": (_picture(16, 16, 3, padding=1), (2, 16, 8, 6)),
    "plain": (_picture(4, 8, 3), (1, 4, 9, 9)),
    "moving": (_picture(8, 8, 3, stride=2, padding=1), (1, 8, 9, 9)),
    "pointwise": (_picture(16, 24, 1), (1, 16, 6, 6)),
    "depthwise": (_picture(16, 16, 3, padding=1, groups=16), (1, 16, 6, 6)),
    "dilated": (_picture(8, 8, 3, dilation=2), (1, 8, 9, 9)),
    "normed": (
        lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)),
        (1, 8, 6, 6),
    ),
    "transposed": (lambda: nn.ConvTranspose2d(8, 8, 3, stride=2), (1, 8, 5, 5)),
    "signal": (lambda: nn.Conv1d(4, 8, 3, padding=1), (1, 4, 12)),
    "volume": (lambda: nn.Conv3d(4, 8, 3, padding=1), (1, 4, 4, 5, 4)),
}
# What loses NaN in oneDNN, behind each layer; the rest behind a few.
FLOATS = [
    *((layer, "relu") for layer in LAYERS),
    *(("plain", name) for name in ("relu6", "hardsigmoid", "hardswish", "clamp_min", "clamp_max")),
    *(("plain", name) for name in ("leaky_relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "elu")),
    *(("many_rows", name) for name in ("hardtanh", "hardsigmoid", "clamp", "gelu", "sum", "difference")),
    *(("moving", name) for name in ("relu_of_sum", "relu_of_difference", "sum")),
    *(("winograd", name) for name in ("relu_of_sum", "relu6")),
    *((layer, name) for layer in ("pointwise", "depthwise") for name in EPILOGUES if name != "relu"),
]
HALVES = [
    *((layer, "relu") for layer in ("few_rows", "many_rows", "winograd", "normed", "depthwise", "volume")),
    *(("plain", name) for name in ("relu6", "hardsigmoid", "relu_of_sum")),
    *(("many_rows", name) for name in ("hardtanh", "hardsigmoid", "silu")),
]
CASES = [*((*case, torch.float32) for case in FLOATS), *((*case, torch.bfloat16) for case in HALVES)]


class Table(nn.Module):
    """Every case beside the others: one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LAYERS[layer][0]().to(dtype) for layer, _, dtype in CASES)

    def forward(self, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [
            EPILOGUES[name](self.layers[number](given[layer].to(dtype)))
            for number, (layer, name, dtype) in enumerate(CASES)
        ]


def _spoiled(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Of the same shape: everything, then a number at a place."""
    yield torch.full_like(x, NAN)
    for values in ((NAN,), (INF,), (-INF,), (INF, -INF, NAN)):
        spoiled = x.clone()
        flat = spoiled.view(-1)
        for number, value in enumerate(values):
            flat[flat.numel() // (2 + number) - number] = value
        yield spoiled


@pytest.mark.parametrize(
    "fixed", [pytest.param(True, marks=about_x86("layers that take packed weights,")), False]
)
def test_what_is_not_finite_comes_out_as_in_eager_code(fixed: bool) -> None:
    torch.manual_seed(0)
    model = Table().eval()
    given = {layer: torch.randn(shape) for layer, (_, shape) in LAYERS.items()}
    before = {layer: x.clone() for layer, x in given.items()}
    call, _, steps = compiled(model, variant("native"), given, fixed=fixed)
    assert len(CASES) > 40
    assert len(steps) > len(CASES) / 2 if fixed else not steps
    for number, spoiled in enumerate(zip(*(_spoiled(x) for x in before.values()), strict=True)):
        for layer, x in zip(given, spoiled, strict=True):
            given[layer].copy_(x)
        with torch.no_grad():
            expected = model(given)
        assert number or all(each.isnan().all() for each in expected)
        for place, (one, other) in enumerate(zip(call(), expected, strict=True)):
            if CASES[place][1] == "gelu" and (not fixed or CASES[place][0] in ("pointwise", "depthwise")):
                continue  # ours and inductor's own of infinity is infinity, and eager code's NaN
            most = 1e-4 if other.dtype == torch.float32 else 4e-2
            case = f"{CASES[place]}, {number}: "
            torch.testing.assert_close(
                one, other, atol=most, rtol=most, equal_nan=True, msg=lambda text, case=case: case + text
            )
