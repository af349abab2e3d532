"""What a graph returns lies in memory as in eager code, whatever its convolutions give.

Those whose weights are packed give channels last. Inductor keeps the strides that outputs have when it is
given a graph, and by then ours has been changed.
Seen in torch 2.13.0 (torch/_inductor/freezing.py: `enforce_output_layout`, which does it there).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hatch_precompile.inductor.prepacking.steps import may_share_memory
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = ["gives_channels_last", "keep_strides"]

aten = torch.ops.aten

_GIVE_OTHERS: list[Callable[..., Any]] = [torch.ops.mkldnn._convolution_pointwise.default]
# What they give depends on how their input lies in memory.
_SEE_STRIDES = {aten.as_strided.default, aten.as_strided_scatter.default}


def gives_channels_last(target: Callable[..., Any]) -> None:
    """Note that nodes with this target give channels last, whatever strides their `val` has."""
    _GIVE_OTHERS.append(target)


def keep_strides(graph: Any) -> None:
    """Have tensors that are seen through their strides be laid out as the values of their nodes say."""
    if not any(graph.find_nodes(op="call_function", target=target) for target in _GIVE_OTHERS):
        return
    users: dict[Any, list[Any]] = {}
    (output,) = graph.find_nodes(op="output")
    for node in output.all_input_nodes:
        origin, views = _origin(node)
        users.setdefault(origin, []).extend([output, *views])
    for target in _SEE_STRIDES:
        for node in graph.find_nodes(op="call_function", target=target):
            origin, views = _origin(node.args[0])
            users.setdefault(origin, []).extend([node, *views])
    for origin, its in users.items():
        _force(graph, origin, its)


def _origin(node: Any) -> tuple[Any, list[Any]]:
    """The node whose memory another may lie in, and those on the way there."""
    views = []
    while may_share_memory(node) and isinstance(node.args[0], torch.fx.Node):
        views.append(node)
        node = node.args[0]
    return node, views


def _force(graph: Any, node: Any, users: Sequence[Any]) -> None:
    """Lay out a tensor for some users. Convolutions want channels last, and would decide for all."""
    from torch._inductor.inductor_prims import force_stride_order

    value = node.meta.get("val")
    if node.op == "placeholder" or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return
    if value.dim() < 2 or not is_non_overlapping_and_dense_or_false(value):
        return
    if free_unbacked_symbols(value.stride()):
        return
    # It is their order that counts, which is that of the sample's. Torch 2.11 cannot tell it of symbols.
    strides = tuple(value_in_sample(each, 1) for each in value.stride())
    with graph.inserting_before(node.next):
        forced = graph.call_function(force_stride_order, (node, strides))
    forced.meta.update(node.meta)
    for user in users:
        user.replace_input_with(node, forced)
