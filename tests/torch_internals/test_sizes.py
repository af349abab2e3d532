"""Which questions about sizes a trace leaves as conditions, and that those left out change nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from hatch_precompile.tracing.any_size.tracing import sizes_as_declared

CHANNELS = 8
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def symbolic(x: torch.Tensor) -> tuple[ShapeEnv, torch.Tensor]:
    """A tensor as dynamo would trace it with all sizes but that of the channels unknown."""
    shapes = ShapeEnv()
    kinds = [DimDynamic.STATIC if dim == 1 else DimDynamic.DYNAMIC for dim in range(x.dim())]
    fake = FakeTensorMode(shape_env=shapes).from_tensor(
        x, source=ConstantSource("x"), symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds)
    )
    return shapes, fake


def laid_out(shapes: ShapeEnv, traced: torch.Tensor, given: torch.Tensor, sizes: tuple[int, ...]) -> Any:
    """The size and stride of a traced tensor where the tensor it was computed from has these sizes."""
    values = {
        size.node.expr: value
        for size, value in zip(given.shape, sizes, strict=True)
        if isinstance(size, torch.SymInt)
    }

    def known(number: Any) -> int:
        return int(number.node.expr.subs(values)) if isinstance(number, torch.SymInt) else number

    return [known(each) for each in traced.shape], [known(each) for each in traced.stride()]


def weight(*shape: int, last: bool = False) -> torch.Tensor:
    made = torch.ones(shape)
    return made.contiguous(memory_format=FORMATS[made.dim()]) if last else made


CONVOLUTIONS: dict[str, Callable[[Any, Callable[[torch.Tensor], Any]], Any]] = {
    "3 x 3": lambda x, w: F.conv2d(x, w(weight(16, 8, 3, 3)), padding=1),
    "1 x 1": lambda x, w: F.conv2d(x, w(weight(16, 8, 1, 1))),
    "strided": lambda x, w: F.conv2d(x, w(weight(16, 8, 3, 3)), stride=2, padding=1),
    "dilated": lambda x, w: F.conv2d(x, w(weight(16, 8, 3, 3)), dilation=2, padding=2),
    "depthwise": lambda x, w: F.conv2d(x, w(weight(8, 1, 3, 3)), groups=8, padding=1),
    "weights channels last": lambda x, w: F.conv2d(x, w(weight(16, 8, 3, 3, last=True)), padding=1),
    "transposed": lambda x, w: F.conv_transpose2d(x, w(weight(8, 4, 2, 2)), stride=2),
    "transposed far": lambda x, w: F.conv_transpose2d(x, w(weight(8, 4, 3, 3)), stride=3, output_padding=2),
}


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in CONVOLUTIONS), ("3 x 3", torch.bfloat16), ("1 x 1", torch.float64)],
)
def test_a_convolution_asks_nothing_and_lies_as_it_does(name: str, last: bool, dtype: torch.dtype) -> None:
    convolution = CONVOLUTIONS[name]

    def pictures(*sizes: int) -> torch.Tensor:
        made = torch.ones(sizes, dtype=dtype)
        return made.contiguous(memory_format=torch.channels_last) if last else made

    shapes, fake = symbolic(pictures(4, CHANNELS, 20, 24))
    with sizes_as_declared(), fake.fake_mode:  # type: ignore[attr-defined]
        before = len(shapes.guards)
        traced = convolution(fake, lambda w: fake.fake_mode.from_tensor(w.to(dtype)))  # type: ignore[attr-defined]
        assert [str(guard.expr) for guard in shapes.guards[before:]] == []
    # Both sides of what decides: pictures at once, and elements of them all. Of a picture of one pixel both
    # layouts are right, so that only larger ones tell.
    for batch, height in itertools.product((2, 16), (7, 64)):
        real = convolution(pictures(batch, CHANNELS, height, 9), lambda w: w.to(dtype))
        expected = laid_out(shapes, traced, fake, (batch, CHANNELS, height, 9))
        assert [list(real.shape), list(real.stride())] == list(expected), (batch, height)


def test_what_would_lie_otherwise_is_asked() -> None:
    shapes, fake = symbolic(torch.ones(2, CHANNELS, 4, 6, 6).contiguous(memory_format=torch.channels_last_3d))
    kernel = weight(4, CHANNELS, 3, 3, 3)
    with sizes_as_declared(), fake.fake_mode:  # type: ignore[attr-defined]
        F.conv3d(fake[:1], fake.fake_mode.from_tensor(kernel))  # type: ignore[attr-defined]
    assert any("20480" in str(guard.expr) for guard in shapes.guards)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "pooled": lambda x: F.max_pool2d(F.max_pool2d(x, 2), 2) + 1,
    "averaged": lambda x: F.avg_pool2d(x, 4),
    "contiguous": lambda x: F.avg_pool2d(x, 2).contiguous().view(x.shape[0], -1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_pictures_that_may_shrink_to_one_pixel(name: str) -> None:
    shapes, fake = symbolic(torch.ones(4, CHANNELS, 20, 24))
    with sizes_as_declared(), fake.fake_mode:  # type: ignore[attr-defined]
        LAYOUTS[name](fake)
    assert [str(guard.expr) for guard in shapes.guards if "Ne(" in str(guard.expr)] == []
