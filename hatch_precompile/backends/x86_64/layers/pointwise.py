"""Convolutions by 1 x 1 filters whose weights are fixed: our own function for them, and for what follows.

oneDNN takes 20 to 30 microseconds to set up each convolution, which is more than many of them take in a
network for phones, and it must not be given a relu (epilogues.py). Ours starts at once and does what follows
a convolution while its results are near. Inductor's patterns find what that is, as they do for oneDNN: the
node is the same but for one number more in its dilation than it has dimensions: that of its filters.
Seen in torch 2.13.0 (torch/_inductor/fx_passes/mkldnn_fusion.py, torch/_inductor/mkldnn_lowerings.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any

import torch

from hatch_precompile.backends.x86_64.layers.panels import COLUMNS, in_panels
from hatch_precompile.inductor.own_functions import call_laid_out, calls_c_functions, lowered
from hatch_precompile.inductor.prepacking.steps import added
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = ["is_pointwise", "pointwise_convolution", "pointwise_convolutions"]

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn

_FUNCTION = files(__package__).joinpath("pointwise.h").read_text("utf-8")

# In the order of `Function` in pointwise.h; gelu has two.
_FOLLOWING = (
    *("none", "relu", "hardtanh", "hardsigmoid", "hardswish", "sigmoid", "swish", "tanh", "leaky_relu"),
    "gelu",
)


# Multiplications up to which oneDNN's set-up counts: a tenth of the time of so many on Zen 4.
_MOST = 1 << 24


def is_pointwise(node: Any) -> bool:
    """Whether a convolution is one for our function. Where sizes are not known the sample's count."""
    x, weight, bias, stride, padding, _dilation, transposed, _, groups = node.args
    value, base = x.meta["val"], weight.meta["val"]
    tensors = [value, base, *([] if bias is None else [bias.meta["val"]])]
    if transposed or groups != 1 or any(each.dtype != torch.float32 for each in tensors):
        return False
    if list(base.shape[2:]) != [1, 1] or {*stride} != {1} or {*padding} != {0}:
        return False
    images, _, height, width = (value_in_sample(each, 1) for each in value.shape)
    return bool(images * height * width * base.shape[0] * base.shape[1] <= _MOST)


def pointwise_convolution(graph: Any, node: Any, weight: Any) -> Any:
    """A node in the place of such a convolution, to be put before it. weight: of it, finite"""
    x, _, bias, *_ = node.args
    base = weight.meta["val"]
    matrix = added(graph, aten.reshape.default, weight, list(base.shape[:2]))
    packed = graph.call_function(in_panels, (matrix,))
    packed.meta["val"] = base.contiguous()  # of its sizes torch makes those of the result
    how: tuple[Any, ...] = ([0, 0], [1, 1], [1, 1, int(base.shape[0])], 1, "none", [], "")
    return graph.call_function(mkldnn._convolution_pointwise.default, (x, packed, bias, *how))


@contextlib.contextmanager
def pointwise_convolutions() -> Iterator[None]:
    """Have those that are lowered while the block runs be calls of our function."""
    from torch._inductor.lowering import lowerings

    if not torch.backends.mkldnn.is_available():
        yield
        return
    targets = (
        mkldnn._convolution_pointwise.default,
        mkldnn._convolution_pointwise.binary,
        mkldnn._convolution_pointwise_.binary,
    )
    before = {target: lowerings[target] for target in targets}
    lowerings.update({target: _or_ours(target, before[target]) for target in targets})
    try:
        yield
    finally:
        lowerings.update(before)


def _or_ours(target: Any, convolution: Callable[..., Any]) -> Callable[..., Any]:
    alone = target._overloadname == "default"

    def lower(*args: Any) -> Any:
        x, *others = args
        other = None if alone else others.pop(0)
        weight, bias, padding, stride, dilation, groups, *following = others
        if len(dilation) == len(_sizes(x)) - 2:
            return convolution(*args)
        n = dilation[2]
        if not calls_c_functions():
            filters = _filters_of(weight, n, x)
            given = [x, filters] if alone else [x, other, filters]
            return convolution(*given, bias, padding, stride, dilation[:2], groups, *following)
        if alone:
            return _call(x, weight, n, bias, None, *following)
        kind, alpha, *following = following
        if kind == "add" and alpha in (None, 1) and _sizes(other) == _result_sizes(x, n):
            return _call(x, weight, n, bias, other, *following)
        result = lowered(getattr(aten, kind), _call(x, weight, n, bias, None), other, overload="Tensor")
        return lowered(aten.relu, result) if following[0] == "relu" else result

    return lower


def _sizes(x: Any) -> list[Any]:
    return list(x.get_size())


def _result_sizes(x: Any, n: int) -> list[Any]:
    images, _, *size = _sizes(x)
    return [images, n, *size]


def _call(
    x: Any,
    weight: Any,
    n: int,
    bias: Any,
    other: Any,
    name: str | None = None,
    numbers: Sequence[float] | None = None,
    algorithm: str | None = None,
) -> Any:
    """n: channels of the result, which weights in panels do not tell; other: what is added to the
    convolution; name, numbers, algorithm: what follows, in oneDNN's words"""
    from torch._inductor import ir

    which = _FOLLOWING.index(name or "none") + (algorithm == "tanh")
    sizes = _result_sizes(x, n)
    need = ir.ExternKernel
    inputs = [_laid_out(x), need.require_contiguous(need.realize_input(weight))]
    inputs += [] if bias is None else [need.require_contiguous(need.realize_input(bias))]
    inputs += [] if other is None else [_laid_out(other)]
    one, two = (*(float(each) for each in numbers or ()), 0.0, 0.0)[:2]
    constants = (*[None] * (4 - len(inputs)), sizes[1], int(bias is not None), which, one, two)
    layout = ir.FixedLayout(
        device=x.get_device(), dtype=torch.float32, size=sizes, stride=_channels_last(sizes)
    )
    return call_laid_out((_FUNCTION,), "aoti_torch_cpu_precompiled_pointwise", inputs, constants, layout)


def _laid_out(x: Any) -> Any:
    from torch._inductor import ir

    need = ir.ExternKernel
    return need.require_exact_strides(need.realize_input(x), _channels_last(_sizes(x)))


def _channels_last(shape: Sequence[Any]) -> list[Any]:
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]


def _filters_of(weight: Any, n: int, x: Any) -> Any:
    """The filters that lie in these panels, in whose place torch takes them to lie."""
    from torch._inductor import ir

    k = int(_sizes(x)[1])
    filled = -(-n // COLUMNS) * COLUMNS
    there = ir.ExternKernel.realize_input(weight)
    panels = lowered(aten.as_strided, there, [filled // COLUMNS, COLUMNS, k], [k * COLUMNS, 1, COLUMNS])
    rows = lowered(aten.slice, lowered(aten.reshape, panels, [filled, k]), 0, 0, n, overload="Tensor")
    return lowered(aten.reshape, rows, [n, k, 1, 1])
