"""Functions that follow a layer: those of oneDNN's that turn NaN into a number are not used.

Inductor has oneDNN apply what follows a layer whose weights are packed. There, relu, clamp and hard sigmoid
of NaN are their lower bound, so that a picture of NaNs would give confident numbers. These three become
inductor's own code, after the layer: blocks of ResNet-50 take up to 4 % longer. Gelu, silu, tanh, sigmoid,
hard swish, leaky relu and sums keep NaN in oneDNN, too.
Seen in torch 2.13.0 (torch/_inductor/mkldnn_lowerings.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hatch_precompile.inductor.extern_kernels import lowered

__all__ = ["epilogues_that_keep_nan"]

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn


@contextlib.contextmanager
def epilogues_that_keep_nan() -> Iterator[None]:
    """Have layers that are lowered while the block runs leave those functions to inductor."""
    from torch._inductor.lowering import lowerings

    if not torch.backends.mkldnn.is_available():
        yield
        return
    # The places of the function's name, and of its numbers.
    places = {
        mkldnn._linear_pointwise.default: (3, 4),
        mkldnn._convolution_pointwise.default: (7, 8),
        mkldnn._convolution_transpose_pointwise.default: (8, 9),
        mkldnn._convolution_pointwise.binary: (10, 11),
        mkldnn._convolution_pointwise_.binary: (10, 11),
    }
    before = {target: lowerings[target] for target in places}
    lowerings.update({each: _split(each, before[each], *place) for each, place in places.items()})
    try:
        yield
    finally:
        lowerings.update(before)


def _split(target: Any, layer: Callable[..., Any], name: int, numbers: int) -> Callable[..., Any]:
    nothing = "none" if target._overloadname == "default" else None

    def lower(*args: Any) -> Any:
        if args[name] not in _FUNCTIONS:
            return layer(*args)
        plain = [*args[:name], nothing, *args[name + 1 :]]
        plain[numbers] = []
        return _FUNCTIONS[args[name]](layer(*plain), args[numbers])

    return lower


def _relu(x: Any, _: Sequence[float]) -> Any:
    return lowered(aten.relu, x)


def _hardtanh(x: Any, bounds: Sequence[float]) -> Any:
    least, most = bounds
    return lowered(aten.clamp_max, lowered(aten.clamp_min, x, least), most)


def _hardsigmoid(x: Any, _: Sequence[float]) -> Any:
    from torch._inductor.lowering import to_dtype

    dtype = x.get_dtype()
    moved = lowered(aten.add, to_dtype(x, torch.float32), 3, overload="Tensor")
    return to_dtype(lowered(aten.div, _hardtanh(moved, (0, 6)), 6, overload="Tensor"), dtype)


_FUNCTIONS = {"relu": _relu, "hardtanh": _hardtanh, "hardsigmoid": _hardsigmoid}
