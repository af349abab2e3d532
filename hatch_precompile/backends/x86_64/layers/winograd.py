"""Convolutions by 3 x 3 filters whose weights are fixed, by Winograd's algorithm: our own function for them.

The filters are made into points once for each instance, and then four results take 16 multiplications
where oneDNN takes 36. On Zen 4 a convolution takes 0.5 to 0.7 of oneDNN's time, from 4 x 4 to 224 x 224
pixels; on Sapphire Rapids 0.5 to 0.9. Sums are of float32, each of a ninth as many products, and come out as
near to the exact ones as oneDNN's for the same layout. Points are 16 numbers where a filter has 9.
Seen in torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch

from hatch_precompile.backends.x86_64.layers.panels import COLUMNS, FUNCTIONS
from hatch_precompile.inductor.extern_kernels import (
    call_laid_out,
    calls_c_functions,
    lowered,
    lowers_itself,
)
from hatch_precompile.inductor.prepacking.steps import own_step
from hatch_precompile.inductor.prepacking.strides import gives_channels_last
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = ["convolution", "is_worth_points", "points_here"]

aten = torch.ops.aten

# Tiles of 2 x 2 results from which points, which are more than filters, make up for themselves.
_TILES = 4

_FUNCTION = files(__package__).joinpath("winograd.h").read_text("utf-8")


def is_worth_points(node: Any) -> bool:
    """Whether a convolution is one for our function. Where sizes are not known the sample's count."""
    x, weight, _, stride, padding, dilation, transposed, _, groups = node.args
    value, base = x.meta["val"], weight.meta["val"]
    if base.dtype != torch.float32 or value.dtype != torch.float32 or base.dim() != 4:
        return False
    if transposed or groups != 1 or any(each != 1 for each in (*stride, *dilation)):
        return False
    filters, channels, *size = base.shape
    if size != [3, 3] or filters % COLUMNS or channels % COLUMNS or any(p not in (0, 1) for p in padding):
        return False
    images, _, height, width = (value_in_sample(each, 1) for each in node.meta["val"].shape)
    return bool(images * -(-height // 2) * -(-width // 2) >= _TILES)


# Targets of nodes, and how inductor lowers them, as in panels.py.


def points_here(weight: Any, packed: tuple[Sequence[int], Sequence[int]] | None) -> Any:
    """(filters, channels, 3, 3) to (4, 4, panels, channels, 16). The runtime does it, but for a weight that
    the graph itself makes, and returns: that stays as it is, as one does that is not finite.

    packed: for a variant without AVX-512, padding and the sizes of the input that the runtime packs the
    weight for, for oneDNN, where the processor has AVX-512
    """
    if isinstance(weight, torch.Tensor):
        filters, channels = weight.shape[:2]
        return weight.new_empty(4, 4, filters // COLUMNS, channels, COLUMNS)
    return weight


own_step(points_here, "x86_64:points_here", everywhere="x86_64:in_points")


def convolution(x: Any, weight: Any, bias: Any, padding: Sequence[int], filters: int, relu: bool) -> Any:
    """(images, channels, height, width) to (images, filters, ...), channels last. weight: as `points_here`
    gives it; bias: (filters) or None; padding: of height and of width; relu: whether it follows."""
    is_tensor = isinstance(x, torch.Tensor)
    images, _, *size = x.shape if is_tensor else x.get_size()
    height, width = (each + 2 * beside - 2 for each, beside in zip(size, padding, strict=True))
    shape = [images, filters, height, width]
    strides = _channels_last(shape)
    if is_tensor:
        return x.new_empty_strided(shape, strides)
    if not calls_c_functions():
        plain = weight if len(weight.get_size()) == 4 else _filters_of(weight)
        ones = [1, 1]
        result = lowered(aten.convolution, x, plain, bias, ones, list(padding), ones, False, [0, 0], 1)
        return lowered(aten.relu, result) if relu else result
    from torch._inductor import ir

    need = ir.ExternKernel
    inputs = [
        need.require_exact_strides(need.realize_input(x), _channels_last(x.get_size())),
        *(need.require_contiguous(need.realize_input(each)) for each in (weight, bias) if each is not None),
    ]
    constants = (*((None,) if bias is None else ()), filters, *padding, int(relu))
    layout = ir.FixedLayout(device=x.get_device(), dtype=torch.float32, size=shape, stride=strides)
    name = "aoti_torch_cpu_precompiled_winograd"
    return call_laid_out((FUNCTIONS, _FUNCTION), name, inputs, constants, layout)


for _target in (points_here, convolution):
    lowers_itself(_target)
gives_channels_last(convolution)


def _channels_last(shape: Sequence[Any]) -> list[Any]:
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]


def _filters_of(points: Any) -> Any:
    """The filters whose points these are."""
    from torch._inductor.lowering import lowerings

    settings = {"dtype": torch.int64, "device": points.get_device(), "requires_grad": False}
    numbers = lowerings[torch.ops.prims.iota.default](3, start=0, step=1, **settings)
    for dimension in (0, 1):
        one, two, three, four = (
            lowered(
                aten.unsqueeze, lowered(aten.select, points, dimension, number, overload="int"), dimension
            )
            for number in range(4)
        )
        # Not aten.cat, which in torch 2.11 looks at the arguments of the node.
        place = lowered(aten.view, numbers, [3 if each == dimension else 1 for each in range(5)])
        is_first, is_second = (lowered(aten.eq, place, number, overload="Scalar") for number in (0, 1))
        middle = lowered(aten.sub, two, three, overload="Tensor")
        behind = lowered(aten.where, is_second, middle, four, overload="self")
        points = lowered(aten.where, is_first, one, behind, overload="self")
    _, _, panels, channels, columns = points.get_size()
    transposed = lowered(aten.permute, points, [2, 4, 3, 0, 1])
    return lowered(aten.view, transposed, [panels * columns, channels, 3, 3])
