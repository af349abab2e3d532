"""Convolutions whose weights are read at each call, and are more than the images.

Inductor has all convolutions take images channels last, and turns the weights of each to that at each call:
a sixth of ResNet-50's time for one image. What it saves by it grows with the images. So where the weights
are more, both stay as they are, as in eager code.
Seen in torch 2.13.0 (`decide_layout_opt` in torch/_inductor/graph.py, torch/_inductor/kernel/conv.py).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hatch_precompile.inductor.extern_kernels import lowered, lowers_itself
from hatch_precompile.inductor.prepacking.steps import is_dense
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = ["contiguous_convolution", "contiguous_convolutions"]

aten = torch.ops.aten

# How many times as large as a convolution's input and result its weight is, for that to be worth it. At two
# no model became slower: ResNets, VGG, blocks of a U-Net, with 1 to 16 images, on Intel's and AMD's.
_TIMES = 2


def contiguous_convolutions(graph: Any) -> None:
    """Have those convolutions be ours, which inductor does not take into account when it lays out others."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_mostly_weight(node):
            node.target = contiguous_convolution


def _is_mostly_weight(node: Any) -> bool:
    x, weight, _bias, _stride, _padding, _dilation, transposed, *_ = node.args
    if transposed or weight.op != "placeholder":  # what the graph makes itself it can make as it likes
        return False
    value, base = x.meta["val"], weight.meta["val"]
    if free_unbacked_symbols(value) or not is_dense(base) or not base.is_contiguous():
        return False
    if base.dim() != 4 or value.dim() != 4 or base.dtype != torch.float32 or value.dtype != torch.float32:
        return False
    _, channels, *size = base.shape
    if math.prod(size) == 1 or channels == 1:  # it is channels last as it lies
        return False
    images = sum(_numel(each) for each in (value, node.meta["val"]))
    return bool(base.numel() >= _TIMES * images)


def _numel(value: Any) -> int:
    """Of the sample, where sizes are not known."""
    return math.prod(value_in_sample(size, 1) for size in value.shape)


def contiguous_convolution(x: Any, weight: Any, *others: Any) -> Any:
    """aten.convolution, whose tensors are contiguous. Inductor lowers a node by calling its target."""
    if isinstance(x, torch.Tensor):
        return aten.convolution.default(x, weight, *others)
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    contiguous = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x))
    before, V.graph.layout_opt = V.graph.layout_opt, False
    try:
        return lowered(aten.convolution, contiguous, weight, *others)
    finally:
        V.graph.layout_opt = before


lowers_itself(contiguous_convolution)
