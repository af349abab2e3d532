"""Convolutions of float32 by functions of ours: depthwise ones, and by 1 x 1 filters whose weights are fixed.

oneDNN takes 20 to 30 microseconds to set up each convolution, which is more than many of them take in a
network for phones, and it must not be given a relu (epilogues.py). Ours start at once and do what follows
a convolution while its results are near. Of depthwise ones, of 7 to 112 pixels a side, they take 0.3 to 0.75
of oneDNN's time on Zen 4. Inductor's patterns find what follows, as they do for oneDNN: the node is the same,
with five more numbers at the end of its dilation: how many filters there are, their height and width, and the
padding above and to the left.
Seen in torch 2.13.0 (torch/_inductor/fx_passes/mkldnn_fusion.py, torch/_inductor/mkldnn_lowerings.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hatch_precompile.backends.x86_64.layers.panels import COLUMNS, in_panels
from hatch_precompile.inductor.extern_kernels import call_laid_out, calls_c_functions, lowered, lowers_itself
from hatch_precompile.inductor.prepacking.steps import added
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = [
    "depthwise_convolution",
    "depthwise_convolutions",
    "is_ours",
    "own_convolution",
    "own_convolutions",
]

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn

_COMMON, _CONV1X1, _DEPTHWISE = (
    files(__package__).joinpath(f"{name}.h").read_text("utf-8")
    for name in ("convolutions", "conv1x1", "depthwise")
)

# In the order of `Function` in convolutions.h; gelu has two.
_FOLLOWING = (
    *("none", "relu", "hardtanh", "hardsigmoid", "hardswish", "sigmoid", "swish", "tanh", "leaky_relu"),
    "gelu",
)


# Multiplications of a 1 x 1 convolution up to which it is ours. On Zen 4, with a relu, ours take 12 % less
# time than oneDNN's for 12 million of them; for 50 million and more, as in ResNet-50, mostly 2 to 5 %.
_MOST = 1 << 25

# Of depthwise convolutions: columns of a filter, and steps to the side, that fit into registers; and channels
# that fill half a vector.
_WIDEST, _FURTHEST, _FEWEST = 7, 2, 8


def is_ours(node: Any) -> bool:
    """Whether a convolution is one for our functions. Where sizes are not known the sample's count."""
    return _is_of_float32(node) and (_is_small_conv1x1(node) if node.args[-1] == 1 else _is_depthwise(node))


def _is_of_float32(node: Any) -> bool:
    x, weight, bias, *_ = node.args
    tensors = [each.meta["val"] for each in (x, weight, bias) if each is not None]
    return tensors[0].dim() == 4 and all(each.dtype == torch.float32 for each in tensors)


def _is_depthwise(node: Any) -> bool:
    _, weight, _, stride, padding, dilation, transposed, _, groups = node.args
    shape = weight.meta["val"].shape
    filters, channels, _, width = shape
    # Symbolic ones are nodes, as for any number of channels.
    if not all(isinstance(each, int) for each in (groups, *shape, *stride, *padding, *dilation)):
        return False
    if transposed or not groups == filters >= _FEWEST or channels != 1:
        return False
    return bool({*dilation} == {1} and width <= _WIDEST and stride[-1] <= _FURTHEST)


def _is_small_conv1x1(node: Any) -> bool:
    x, weight, _, stride, padding, _, transposed, *_ = node.args
    filters, channels, *size = weight.meta["val"].shape
    if transposed or size != [1, 1] or {*stride} != {1} or {*padding} != {0}:
        return False
    images, _, height, width = (value_in_sample(each, 1) for each in x.meta["val"].shape)
    return bool(images * height * width * filters * channels <= _MOST)


def depthwise_convolutions(graph: Any) -> None:
    """Have depthwise convolutions be ours, whose weights are put into panels at each call: these are few."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        value = node.args[0].meta["val"]
        if value.device.type != "cpu" or free_unbacked_symbols(value):
            continue
        if node.args[-1] != 1 and is_ours(node):
            node.target = depthwise_convolution


def depthwise_convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, *others: Any) -> Any:
    """aten.convolution, where it is one for our function. Inductor lowers a node by calling its target."""
    if isinstance(x, torch.Tensor):
        return aten.convolution.default(x, weight, bias, stride, padding, *others)
    if not calls_c_functions():
        return lowered(aten.convolution, x, weight, bias, stride, padding, *others)
    n, _, height, width = map(int, _sizes(weight))
    panels = in_panels(lowered(aten.reshape, weight, [n, height * width]))
    padding, stride = _pair(padding), _pair(stride)
    ours = _Convolution(x, panels, bias, padding, stride, n, height, width, padding, depthwise=True)
    return ours.call(None)


lowers_itself(depthwise_convolution)


def _pair(each: Sequence[int]) -> list[int]:
    """For two dimensions what may be one number for both."""
    return list(each) * (2 // len(each))


def own_convolution(graph: Any, node: Any, weight: Any) -> Any:
    """Our node for a convolution, put where the graph inserts nodes now. weight: its own, through `finite`"""
    _, _, bias, stride, _, dilation, _, _, groups = node.args
    x, padding, before = _padded(node)
    base = weight.meta["val"]
    n, _, *size = map(int, base.shape)
    matrix = added(graph, aten.reshape.default, weight, [n, base.numel() // n])
    packed = graph.call_function(in_panels, (matrix,))
    packed.meta["val"] = base.contiguous()  # of its sizes torch makes those of the result
    how: tuple[Any, ...] = (
        padding,
        _pair(stride),
        [*_pair(dilation), n, *size, *before],
        groups,
        "none",
        [],
        "",
    )
    return graph.call_function(mkldnn._convolution_pointwise.default, (x, packed, bias, *how))


def _padded(node: Any) -> tuple[Any, list[int], list[int]]:
    """The input of a convolution, its padding, and how much of that is above and to the left. Zeros that were
    put around a depthwise one's input are padding, too, as in networks that were made for TensorFlow, where
    there may be more of it below than above. Half of all of it is what sizes of results are computed from.
    """
    x, weight, _, stride, padding, *_, groups = node.args
    padding = _pair(padding)
    if groups == 1 or x.target is not aten.constant_pad_nd.default:
        return x, padding, padding
    inner, sides, *value = x.args
    if (
        value not in ([], [0])
        or len(sides) != 4
        or not all(type(side) is int and side >= 0 for side in sides)
    ):
        return x, padding, padding
    left, right, above, below = sides
    size, filters = inner.meta["val"].shape[2:], weight.meta["val"].shape[2:]
    before = [each + more for each, more in zip(padding, (above, left), strict=True)]
    after = [each + more for each, more in zip(padding, (below, right), strict=True)]
    halves = [*map(_half, size, before, after, filters, _pair(stride))]
    if -1 in halves:
        return x, padding, padding
    return inner, halves, before


def _half(size: Any, before: int, after: int, filter_: int, step: int) -> int:
    """How much padding on each side gives as many results, or -1. size: of the image alone"""
    half, odd = divmod(before + after, 2)
    if not odd:
        return half
    if not isinstance(size, int):
        return -1
    results = (size + before + after - filter_) // step
    fit = (each for each in (half, half + 1) if (size + 2 * each - filter_) // step == results)
    return next((each for each in fit if 2 * each >= before), -1)


@contextlib.contextmanager
def own_convolutions() -> Iterator[None]:
    """Have those that are lowered while the block runs be calls of our functions."""
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
        n, height, width, *before = dilation[2:]
        ours = _Convolution(x, weight, bias, padding, stride, n, height, width, before, depthwise=groups > 1)
        if not calls_c_functions():
            around = ours.with_zeros_around()
            given = [around, ours.filters()] if alone else [around, other, ours.filters()]
            return convolution(*given, bias, [0, 0], stride, dilation[:2], groups, *following)
        if alone:
            return ours.call(None, *following)
        kind, alpha, *following = following
        if kind == "add" and alpha in (None, 1) and _sizes(other) == ours.result_sizes():
            return ours.call(other, *following)
        result = lowered(getattr(aten, kind), ours.call(None), other, overload="Tensor")
        return lowered(aten.relu, result) if following[0] == "relu" else result

    return lower


@dataclass(frozen=True)
class _Convolution:
    """weight: in panels, whose shape does not tell the number of filters, n, nor their height and width
    padding: half of that of both sides; before: that above and to the left"""

    x: Any
    weight: Any
    bias: Any
    padding: Sequence[int]
    stride: Sequence[int]
    n: int
    height: int
    width: int
    before: Sequence[int]
    depthwise: bool

    def result_sizes(self) -> list[Any]:
        from torch.utils._sympy.functions import FloorDiv

        images, _, *size = _sizes(self.x)
        filters = (self.height, self.width)
        return [
            images,
            self.n,
            *(
                FloorDiv(each + 2 * beyond - filter_, step) + 1
                for each, beyond, filter_, step in zip(size, self.padding, filters, self.stride, strict=True)
            ),
        ]

    def call(
        self,
        other: Any,
        name: str | None = None,
        numbers: Sequence[float] | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """other: what is added to the result; name, numbers, algorithm: what follows, in oneDNN's words"""
        from torch._inductor import ir

        which = _FOLLOWING.index(name or "none") + (algorithm == "tanh")
        need = ir.ExternKernel
        inputs = [_laid_out(self.x), need.require_contiguous(need.realize_input(self.weight))]
        inputs += [] if self.bias is None else [need.require_contiguous(need.realize_input(self.bias))]
        inputs += [] if other is None else [_laid_out(other)]
        given: tuple[Any, ...] = (*[None] * (4 - len(inputs)), self.n, int(self.bias is not None))
        one, two = (*(float(each) for each in numbers or ()), 0.0, 0.0)[:2]
        sizes = self.result_sizes()
        layout = ir.FixedLayout(
            device=self.x.get_device(), dtype=torch.float32, size=sizes, stride=_channels_last(sizes)
        )
        if not self.depthwise:
            name, instance = _instance("conv1x1", which)
            return call_laid_out((_COMMON, _CONV1X1, instance), name, inputs, (*given, one, two), layout)
        name, instance = _instance("depthwise", self.width, self.stride[1], which)
        given = (*given, self.height, self.stride[0], *self.padding, *self.before, one, two)
        return call_laid_out((_COMMON, _DEPTHWISE, instance), name, inputs, given, layout)

    def with_zeros_around(self) -> Any:
        """The input, for torch, which has no padding that differs."""
        (above, left), (below, right) = (
            self.before,
            (2 * half - before for half, before in zip(self.padding, self.before, strict=True)),
        )
        sides = [left, right, above, below]
        return lowered(aten.constant_pad_nd, self.x, sides, 0.0) if any(sides) else self.x

    def filters(self) -> Any:
        """What lies in these panels, for torch, to which `weight` has the sizes of the filters."""
        from torch._inductor import ir

        k = self.height * self.width if self.depthwise else int(_sizes(self.x)[1])
        filled = -(-self.n // COLUMNS) * COLUMNS
        there = ir.ExternKernel.realize_input(self.weight)
        panels = lowered(aten.as_strided, there, [filled // COLUMNS, COLUMNS, k], [k * COLUMNS, 1, COLUMNS])
        rows = lowered(
            aten.slice, lowered(aten.reshape, panels, [filled, k]), 0, 0, self.n, overload="Tensor"
        )
        shape = [self.n, 1, self.height, self.width] if self.depthwise else [self.n, k, 1, 1]
        return lowered(aten.reshape, rows, shape)


def _instance(kind: str, *numbers: int) -> tuple[str, str]:
    """The name of a function of ours for these, and its source: each that is used is compiled by itself."""
    name = "_".join(map(str, ("aoti_torch_cpu_precompiled", kind, *numbers)))
    return name, f"constexpr auto {name} = precompiled_{kind}<{', '.join(map(str, numbers))}>;\n"


def _sizes(x: Any) -> list[Any]:
    return list(x.get_size())


def _laid_out(x: Any) -> Any:
    from torch._inductor import ir

    need = ir.ExternKernel
    return need.require_exact_strides(need.realize_input(x), _channels_last(_sizes(x)))


def _channels_last(shape: Sequence[Any]) -> list[Any]:
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]
