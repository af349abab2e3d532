"""LSTM layers of float32: the inputs' product for all steps at once, the steps by our own function.

oneDNN's layer, which torch takes, packs its weights at each call. With weights packed before, two layers of
512 still took half as long again as eager code, for one sequence on Zen 4. Ours take 0.7 of eager code's
time, and 0.8 with weights that are read, of which half are packed at each call. The inputs' product is a
layer like any other.
Seen in torch 2.13.0 (`mkldnn_one_layer_lstm` in torch/_decomp/decompositions.py).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import torch

from hatch_precompile.inductor.extern_kernels import (
    call_with_results,
    calls_c_functions,
    lowered,
    lowers_itself,
)
from hatch_precompile.inductor.prepacking.steps import added
from hatch_precompile.inductor.prepacking.symbolic_sizes import as_arguments

__all__ = ["all_steps", "split_recurrent_layers"]

aten = torch.ops.aten

_GATES, _UNITS = 4, 16  # of recurrent.h

_LSTM = 2  # `rnn_kind` of oneDNN's, as torch numbers them

_FUNCTION = files(__package__).joinpath("recurrent.h").read_text("utf-8")

# Beyond it a sigmoid and a tanh are the same, and the product with zero is zero.
_LARGE = 1e30


def split_recurrent_layers(graph: Any) -> None:
    """Have each layer be a product of its inputs with their weights, and the steps."""
    for node in graph.find_nodes(op="call_function", target=aten.mkldnn_rnn_layer.default):
        if _is_ours(node):
            _split(graph, node)


def _is_ours(node: Any) -> bool:
    x, w_inputs, w_state, b_inputs, b_state, hx, cx, _, batch_sizes, mode, _, layers, biases, *others = (
        node.args
    )
    tensors = [x, w_inputs, w_state, hx, cx, *([b_inputs, b_state] if biases else [])]
    values = [each.meta["val"] for each in tensors]
    if any(value.dtype != torch.float32 or value.device.type != "cpu" for value in values):
        return False
    bidirectional, batch_first, train = others
    if mode != _LSTM or layers != 1 or batch_sizes or bidirectional or batch_first or train:
        return False
    known = all(isinstance(size, int) and size for value in values[1:3] for size in value.shape)
    return known and values[0].dim() == 3 and {user.args[-1] for user in node.users} <= {0, 1, 2}


def _split(graph: Any, node: Any) -> None:
    x, w_inputs, w_state, b_inputs, b_state, hx, cx, reverse, _, _, size, _, biases, *_ = node.args
    value = x.meta["val"]
    steps, batch, columns = value.shape
    with graph.inserting_before(node):
        rows = _viewed(graph, x, [-1, columns], value.reshape(-1, columns))
        transposed = added(graph, aten.permute.default, w_inputs, [1, 0])
        if biases:
            bias = added(graph, aten.add.Tensor, b_inputs, b_state)
            product = added(graph, aten.addmm.default, bias, rows, transposed)
        else:
            product = added(graph, aten.mm.default, rows, transposed)
        sizes = as_arguments(graph, (steps, batch))
        whole = product.meta["val"].view(steps, batch, _GATES * size)
        gates = _viewed(graph, product, [*sizes, _GATES * size], whole)
        packed = _by_units(graph, w_state, size)
        layer = graph.call_function(all_steps, (gates, packed, hx, cx, bool(reverse)))
        layer.meta.update(node.meta)
        layer.meta["val"] = node.meta["val"][:3]
    node.replace_all_uses_with(layer)
    graph.erase_node(node)


def _viewed(graph: Any, node: Any, sizes: Any, value: Any) -> Any:
    view = graph.call_function(aten.reshape.default, (node, list(sizes)))
    view.meta["val"] = value
    return view


def _by_units(graph: Any, weight: Any, size: int) -> Any:
    """Nodes that make (blocks of units, size, gates, 16) of (gates * size, size), filled up."""
    blocks = -(-size // _UNITS)
    split = added(graph, aten.view.default, weight, [_GATES, size, size])
    if size % _UNITS:
        split = added(graph, aten.constant_pad_nd.default, split, [0, 0, 0, -size % _UNITS])
    split = added(graph, aten.view.default, split, [_GATES, blocks, _UNITS, size])
    ordered = added(graph, aten.permute.default, split, [1, 3, 0, 2])
    copied = graph.call_function(aten.clone.default, (ordered,), {"memory_format": torch.contiguous_format})
    copied.meta["val"] = ordered.meta["val"].contiguous()
    return copied


def all_steps(gates: Any, weight: Any, hx: Any, cx: Any, reverse: bool) -> Any:
    """The steps of a layer: its output, (steps, batch, size), and the last states. A target of nodes.

    gates: (steps, batch, 4 * size), what they get of the inputs, with the biases; weight: (blocks, size, 4,
    16), that of the state; hx, cx: (1, batch, size), the first states; reverse: from the last step on
    """
    if isinstance(gates, torch.Tensor):
        steps, batch, _ = gates.shape
        return gates.new_empty(steps, batch, hx.shape[-1]), torch.empty_like(hx), torch.empty_like(cx)
    if not calls_c_functions():
        return _by_onednn(gates, weight, hx, cx, reverse)
    from torch._inductor import ir

    steps, batch, _ = gates.get_size()
    size = hx.get_size()[-1]
    need = ir.ExternKernel
    inputs = [need.require_contiguous(need.realize_input(each)) for each in (gates, weight, hx, cx)]
    layouts = [
        ir.FixedLayout(gates.get_device(), torch.float32, sizes, ir.FlexibleLayout.contiguous_strides(sizes))
        for sizes in ([steps, batch, size], [1, batch, size], [1, batch, size])
    ]
    return call_with_results(
        (_FUNCTION,), "aoti_torch_cpu_precompiled_lstm", inputs, (int(reverse),), layouts
    )


lowers_itself(all_steps)


def _by_onednn(gates: Any, weight: Any, hx: Any, cx: Any, reverse: bool) -> Any:
    """The same by torch's operator, whose inputs are what the gates get, and their weights ones and zeros."""
    from torch._inductor.lowering import lowerings, to_dtype

    size = int(hx.get_size()[-1])
    device, columns = gates.get_device(), _GATES * size
    numbers = lowerings[torch.ops.prims.iota.default](
        columns, start=0, step=1, dtype=torch.int64, device=device, requires_grad=False
    )
    same = lowered(
        aten.eq, lowered(aten.unsqueeze, numbers, 0), lowered(aten.unsqueeze, numbers, 1), overload="Tensor"
    )
    ordered = lowered(aten.permute, weight, [2, 0, 3, 1])
    filled = -(-size // _UNITS) * _UNITS
    units = lowered(
        aten.slice, lowered(aten.view, ordered, [_GATES, filled, size]), 1, 0, size, overload="Tensor"
    )
    of_state = lowered(aten.view, units, [columns, size])
    bias = lowerings[aten.full.default]([columns], 0.0, dtype=torch.float32, device=device)
    finite = lowered(aten.clamp_max, lowered(aten.clamp_min, gates, -_LARGE), _LARGE)
    how: tuple[Any, ...] = (reverse, [], _LSTM, size, 1, True, False, False, False)
    return lowerings[aten.mkldnn_rnn_layer.default](
        finite, to_dtype(same, torch.float32), of_state, bias, bias, hx, cx, *how
    )[:3]
