"""LSTM and GRU layers of float32: the inputs' product for all steps at once, the steps by our own function.

oneDNN's layer, which torch takes for an LSTM, packs its weights at each call. With weights packed before, two
layers of 512 still took half as long again as eager code, for one sequence on Zen 4. Ours take 0.7 of eager
code's time, and 0.8 with weights that are read, of which half are packed at each call. The inputs' product
is a layer like any other.
A GRU, which torch traces step by step, comes here as one operator of ours (gru_layers.py).
Seen in torch 2.13.0 (`mkldnn_one_layer_lstm` in torch/_decomp/decompositions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch

from hatch_precompile.backends.x86_64.layers.gru_layers import GRU_LAYER
from hatch_precompile.inductor.extern_kernels import (
    call_with_results,
    calls_c_functions,
    lowered,
    lowers_itself,
)
from hatch_precompile.inductor.prepacking.steps import added
from hatch_precompile.inductor.prepacking.symbolic_sizes import as_arguments

__all__ = ["all_gru_steps", "all_steps", "split_gru_layers", "split_lstm_layers"]

aten = torch.ops.aten

_OF_LSTM, _OF_GRU, _UNITS = 4, 3, 16  # gates of each; units in a block of recurrent.h

_LSTM = 2  # `rnn_kind` of oneDNN's, as torch numbers them

_FUNCTION = files(__package__).joinpath("recurrent.h").read_text("utf-8")

# Gates are clamped to it: sigmoid and tanh are the same as beyond it, and its product with zero is zero.
_LARGE = 1e30


def split_lstm_layers(graph: Any) -> None:
    """Have each LSTM layer be a product of its inputs with their weights, and the steps."""
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
    with graph.inserting_before(node):
        bias = added(graph, aten.add.Tensor, b_inputs, b_state) if biases else None
        gates = _of_inputs(graph, x, w_inputs, bias)
        packed = _by_units(graph, w_state, _OF_LSTM, size)
        layer = graph.call_function(all_steps, (gates, packed, hx, cx, bool(reverse)))
        layer.meta.update(node.meta)
        layer.meta["val"] = node.meta["val"][:3]
    node.replace_all_uses_with(layer)
    graph.erase_node(node)


def split_gru_layers(graph: Any) -> None:
    """Have each GRU layer be a product of its inputs with their weights, and the steps."""
    for node in graph.find_nodes(op="call_function", target=GRU_LAYER):
        x, w_inputs, w_state, b_inputs, b_state, hx, reverse = node.args
        size = w_state.meta["val"].shape[1]
        with graph.inserting_before(node):
            bias, of_new = _gru_biases(graph, b_inputs, b_state, w_state, size)
            gates = _of_inputs(graph, x, w_inputs, bias)
            packed = _by_units(graph, w_state, _OF_GRU, size)
            layer = graph.call_function(all_gru_steps, (gates, packed, of_new, hx, reverse))
            layer.meta.update(node.meta)
        node.replace_all_uses_with(layer)
        graph.erase_node(node)


def _gru_biases(graph: Any, b_inputs: Any, b_state: Any, w_state: Any, size: int) -> tuple[Any, Any]:
    """Nodes: what the gates get beside the products, (3 * size) or None; what the new gate gets beside that
    of the state, (size)."""
    if b_inputs is None:
        weight = w_state.meta["val"]
        settings = {"dtype": weight.dtype, "device": weight.device, "pin_memory": False}
        none = graph.call_function(aten.full.default, ([size], 0.0), settings)
        none.meta["val"] = weight.new_empty(size)
        return None, none
    of_both = added(graph, aten.slice.Tensor, b_state, 0, 0, 2 * size)
    filled = added(graph, aten.constant_pad_nd.default, of_both, [0, size])
    of_new = added(graph, aten.slice.Tensor, b_state, 0, 2 * size, 3 * size)
    return added(graph, aten.add.Tensor, b_inputs, filled), of_new


def _of_inputs(graph: Any, x: Any, w_inputs: Any, bias: Any) -> Any:
    """A node that makes (steps, batch, gates * size) of (steps, batch, columns), for all steps at once."""
    value = x.meta["val"]
    steps, batch, columns = value.shape
    rows = _viewed(graph, x, [-1, columns], value.reshape(-1, columns))
    transposed = added(graph, aten.permute.default, w_inputs, [1, 0])
    if bias is not None:
        product = added(graph, aten.addmm.default, bias, rows, transposed)
    else:
        product = added(graph, aten.mm.default, rows, transposed)
    wide = w_inputs.meta["val"].shape[0]
    sizes = as_arguments(graph, (steps, batch))
    return _viewed(graph, product, [*sizes, wide], product.meta["val"].view(steps, batch, wide))


def _viewed(graph: Any, node: Any, sizes: Any, value: Any) -> Any:
    view = graph.call_function(aten.reshape.default, (node, list(sizes)))
    view.meta["val"] = value
    return view


def _by_units(graph: Any, weight: Any, gates: int, size: int) -> Any:
    """Nodes that make (blocks of units, size, gates, 16) of (gates * size, size), filled up."""
    blocks = -(-size // _UNITS)
    split = added(graph, aten.view.default, weight, [gates, size, size])
    if size % _UNITS:
        split = added(graph, aten.constant_pad_nd.default, split, [0, 0, 0, -size % _UNITS])
    split = added(graph, aten.view.default, split, [gates, blocks, _UNITS, size])
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
    return _called("aoti_torch_cpu_precompiled_lstm", (gates, weight, hx, cx), hx, reverse, states=2)


def all_gru_steps(gates: Any, weight: Any, bias: Any, hx: Any, reverse: bool) -> Any:
    """The same of a GRU layer: its output, (steps, batch, size), and the last state. A target of nodes.

    gates: (steps, batch, 3 * size), without the new gate's bias of the state; weight: (blocks, size, 3, 16);
    bias: that one, (size); hx: (1, batch, size), the first state
    """
    if isinstance(gates, torch.Tensor):
        steps, batch, _ = gates.shape
        return gates.new_empty(steps, batch, hx.shape[-1]), torch.empty_like(hx)
    if not calls_c_functions():
        return _by_torch(gates, weight, bias, hx, reverse)
    return _called("aoti_torch_cpu_precompiled_gru", (gates, weight, bias, hx), hx, reverse, states=1)


lowers_itself(all_steps)
lowers_itself(all_gru_steps)


def _called(name: str, given: Sequence[Any], hx: Any, reverse: bool, *, states: int) -> Any:
    """A call of one of the functions of recurrent.h, which gives an output and so many states."""
    from torch._inductor import ir

    gates = given[0]
    steps, batch, _ = gates.get_size()
    size = hx.get_size()[-1]
    need = ir.ExternKernel
    inputs = [need.require_contiguous(need.realize_input(each)) for each in given]
    layouts = [
        ir.FixedLayout(gates.get_device(), torch.float32, sizes, ir.FlexibleLayout.contiguous_strides(sizes))
        for sizes in ([steps, batch, size], *[[1, batch, size]] * states)
    ]
    return call_with_results((_FUNCTION,), name, inputs, (int(reverse),), layouts)


def _by_onednn(gates: Any, weight: Any, hx: Any, cx: Any, reverse: bool) -> Any:
    """The same by torch's operator: its input is `gates`, and its weight for inputs the identity matrix."""
    from torch._inductor.lowering import lowerings

    size = int(hx.get_size()[-1])
    bias = _zeros(gates, _OF_LSTM * size)
    how: tuple[Any, ...] = (reverse, [], _LSTM, size, 1, True, False, False, False)
    return lowerings[aten.mkldnn_rnn_layer.default](
        _finite(gates),
        _ones_and_zeros(gates, _OF_LSTM * size),
        _of_state(weight, _OF_LSTM, size),
        bias,
        bias,
        hx,
        cx,
        *how,
    )[:3]


def _by_torch(gates: Any, weight: Any, bias: Any, hx: Any, reverse: bool) -> Any:
    """The same by torch's operator for whole GRUs, which knows no layer that goes from the last step on."""
    from torch._inductor.lowering import fallback_handler

    size = int(hx.get_size()[-1])
    none = _zeros(gates, _OF_GRU * size)
    of_state = lowered(aten.constant_pad_nd, bias, [2 * size, 0])
    given = _finite(gates)
    if reverse:
        given = lowered(torch.ops.prims.rev, given, [0])
    weights = [_ones_and_zeros(gates, _OF_GRU * size), _of_state(weight, _OF_GRU, size), none, of_state]
    by_torch = fallback_handler(aten.gru.input, add_to_fallback_set=False)
    made, last = by_torch(given, hx, weights, True, 1, 0.0, False, False, False)
    return (lowered(torch.ops.prims.rev, made, [0]) if reverse else made), last


def _zeros(like: Any, count: int) -> Any:
    from torch._inductor.lowering import lowerings

    settings: dict[str, Any] = {"dtype": torch.float32, "device": like.get_device()}
    return lowerings[aten.full.default]([count], 0.0, **settings)


def _ones_and_zeros(like: Any, count: int) -> Any:
    """The identity matrix."""
    from torch._inductor.lowering import lowerings, to_dtype

    numbers = lowerings[torch.ops.prims.iota.default](
        count, start=0, step=1, dtype=torch.int64, device=like.get_device(), requires_grad=False
    )
    same = lowered(
        aten.eq, lowered(aten.unsqueeze, numbers, 0), lowered(aten.unsqueeze, numbers, 1), overload="Tensor"
    )
    return to_dtype(same, torch.float32)


def _finite(gates: Any) -> Any:
    """Clamped, because infinity times the identity's zeros is NaN."""
    return lowered(aten.clamp_max, lowered(aten.clamp_min, gates, -_LARGE), _LARGE)


def _of_state(weight: Any, gates: int, size: int) -> Any:
    """(gates * size, size) of what `_by_units` made of it."""
    ordered = lowered(aten.permute, weight, [2, 0, 3, 1])
    filled = -(-size // _UNITS) * _UNITS
    units = lowered(
        aten.slice, lowered(aten.view, ordered, [gates, filled, size]), 1, 0, size, overload="Tensor"
    )
    return lowered(aten.view, units, [gates * size, size])
