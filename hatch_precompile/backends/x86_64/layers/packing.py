"""Layers whose weights are fixed: these are packed, for oneDNN or for our own functions.

Seen in torch 2.13.0 (torch/_inductor/fx_passes/mkldnn_fusion.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from hatch_precompile.backends.x86_64.layers import panels, winograd
from hatch_precompile.backends.x86_64.layers.convolutions import is_ours, own_convolution
from hatch_precompile.backends.x86_64.layers.matmul_precision import layer_in_bfloat16
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.inductor.prepacking.finite_weights import finite
from hatch_precompile.inductor.prepacking.steps import CAST, added, depends_on, is_dense, returned
from hatch_precompile.tracing.sizes import value_in_sample

__all__ = ["Packing", "pack_layers"]

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn

# Multiplications from which on packing a layer's weights makes up for oneDNN's set-up. A symbolic number of
# rows counts as _ROWS, and any other size that no sample tells as _UNKNOWN.
_WORTH_PACKING = 1 << 20
_ROWS = _UNKNOWN = 16
# Numbers of a weight from which panels are worth it.
_WORTH_PANELS = 1 << 14


@dataclass(frozen=True)
class Packing:
    """How a graph's layers multiply on the processors that a variant is for.

    bfloat16: whether layers of float32 become such of bfloat16
    """

    cpu: Instructions
    bfloat16: bool

    @property
    def few_rows(self) -> int:
        """Up to which layers are ours on a processor with AVX-512."""
        return panels.FEW_ROWS_OF_AVX512 if self.cpu.has_avx512 else panels.FEW_ROWS

    def takes(self, *dtypes: torch.dtype) -> bool:
        """Whether layers of these are packed."""
        kind = set(dtypes)
        return kind == {torch.float32} or (kind == {torch.bfloat16} and self.cpu.has_bfloat16)

    def is_ours(self, x: Any) -> bool:
        """Whether layers of this input are for our own functions."""
        dtype, rows = x.meta["val"].dtype, _rows(x)
        if dtype in (torch.uint8, torch.int8):
            # Without VNNI by 16-bit numbers, and the processor may have it all the same.
            few = self.few_rows if self.cpu.has_vnni else panels.FEW_ROWS
            return self.cpu.has_fma and (self.cpu.has_tiles or rows <= few)
        if dtype == torch.bfloat16 or self.bfloat16:
            return self.cpu.has_bfloat16 and rows <= self.few_rows
        return self.cpu.has_fma and (not self.cpu.has_avx512 or rows <= self.few_rows)

    def is_worth(self, x: Any, *weights: Any) -> bool:
        """Whether packing them makes up for what it costs at each call."""
        numel = sum(weight.meta["val"].numel() for weight in weights)
        if self.is_ours(x):
            return bool(numel >= _WORTH_PANELS)
        rows = x.meta["val"].shape[0]
        return bool((rows if isinstance(rows, int) else _ROWS) * numel >= _WORTH_PACKING)


def pack_layers(graph: Any, fixed: set[Any], packing: Packing) -> None:
    """Pack the weights of layers. For oneDNN, inductor's own patterns then fuse what follows them.
    Convolutions give channels last from then on (strides.py)."""
    _join_layers(graph, fixed, packing)
    for node in list(graph.nodes):
        if node.target is aten.convolution.default:
            if packing.takes(*(each.meta["val"].dtype for each in node.args[:2])):
                _pack_convolution(graph, _with_norm_folded(graph, node, fixed), fixed, packing)
        elif node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            _pack_linear(graph, node, fixed, packing)
        elif node.target is aten._int_mm.default:
            _pack_int8(graph, node, fixed, packing)


def _rows(x: Any) -> float:
    """As many as there may be."""
    rows = x.meta["val"].shape[0]
    return rows if isinstance(rows, int) else math.inf


def _linear(node: Any) -> tuple[Any, Any, Any]:
    """Bias, input and weight, as a layer has it, of a product; each None where there is none."""
    bias, x, transposed = _factors(node)
    return bias, x, transposed.args[0] if _is_transpose(transposed) else None


def _factors(node: Any) -> tuple[Any, Any, Any]:
    """What is added to a product, or None, and the two matrices."""
    return node.args if node.target is aten.addmm.default else (None, *node.args)


def _is_transpose(node: Any) -> bool:
    """Of a matrix. A permutation may leave everything where it is, as tensordot's does."""
    if node.target is aten.permute.default:
        return [dimension % 2 for dimension in node.args[1]] == [1, 0]
    return node.target is aten.t.default


def _pack_linear(graph: Any, node: Any, fixed: set[Any], packing: Packing) -> None:
    bias, x, transposed = _factors(node)
    base = transposed.meta["val"].t()
    if not depends_on(transposed, fixed) or not _is_layer(bias, x, base, packing):
        return
    if depends_on(x, fixed):  # then the product itself can be a step
        return
    if not packing.is_worth(x, transposed):
        return
    bfloat16 = packing.bfloat16 and base.dtype == torch.float32
    columns = base.shape[0]
    with graph.inserting_before(node):
        # GPT-2, for one, keeps its layers' weights transposed.
        weight = (
            transposed.args[0]
            if _is_transpose(transposed)
            else added(graph, aten.permute.default, transposed, [1, 0])
        )
        if bfloat16:
            weight = added(graph, CAST, weight, torch.bfloat16)
        if packing.is_ours(x):
            if weight.meta["val"].dtype == torch.bfloat16:
                target, packed = panels.bfloat16_layer, _in_words(graph, weight, 2, panels.WORDS_AT_ONCE)
            else:
                step = panels.in_panels if _rows(x) <= packing.few_rows else panels.packed_here
                target, packed = panels.layer, added(graph, step, weight)
            layer = graph.call_function(target, (x, packed, bias, columns))
            layer.meta.update(node.meta)
            _replace(graph, node, layer)
            return
        packed = graph.call_function(mkldnn._reorder_linear_weight.default, (weight,))
        # It has no strides, and must not be copied for others.
        packed.meta["val"] = weight.meta["val"].contiguous()
        layer = graph.call_function(mkldnn._linear_pointwise.default, (x, packed, bias, "none", [], ""))
        layer.meta.update(node.meta)
    _replace(graph, node, layer)
    layer = _without_reshapes(graph, layer)
    if bfloat16:
        layer_in_bfloat16(graph, layer, 0)


def _pack_int8(graph: Any, node: Any, fixed: set[Any], packing: Packing) -> None:
    _, x, weight = _linear(node)
    if weight is None or not packing.is_ours(x) or not depends_on(weight, fixed) or depends_on(x, fixed):
        return
    base = weight.meta["val"]
    if base.dtype != torch.int8 or not base.is_contiguous() or min(base.shape) < 1:
        return
    with graph.inserting_before(node):
        if packing.cpu.has_vnni:
            packed = _in_words(graph, weight, 4, panels.WORDS_AT_ONCE)
        else:
            packed = _in_words(graph, weight, 2, 1)
        layer = graph.call_function(panels.int8_layer, (x, packed, base.shape[0]))
        layer.meta.update(node.meta)
    _replace(graph, node, layer)


def _replace(graph: Any, product: Any, layer: Any) -> None:
    """Have a layer in the place of a product, and of the transpose of a weight that only that needed."""
    product.replace_all_uses_with(layer)
    transposed = product.args[-1]
    graph.erase_node(product)
    if not transposed.users:
        graph.erase_node(transposed)


def _in_words(graph: Any, weight: Any, items: int, at_once: int) -> Any:
    """Nodes that make panels of a weight: (panels, words, 16, items), rows of k filled up to words of so many
    items, and to so many words."""
    n, k = weight.meta["val"].shape
    number, words = -(-n // panels.COLUMNS), -(-k // (items * at_once)) * at_once
    if n % panels.COLUMNS or words * items > k:
        filled = [0, words * items - k, 0, -n % panels.COLUMNS]
        weight = added(graph, aten.constant_pad_nd.default, weight, filled)
    split = added(graph, aten.view.default, weight, [number, panels.COLUMNS, words, items])
    transposed = added(graph, aten.permute.default, split, [0, 2, 1, 3])
    return added(graph, aten.contiguous.default, transposed)


def _is_layer(bias: Any, x: Any, base: Any, packing: Packing) -> bool:
    """base: the value of its weight, (n, k)"""
    value = x.meta["val"]
    if not packing.takes(base.dtype, value.dtype) or not is_dense(base):
        return False
    if min(base.shape) < 1 or value.device.type != "cpu":
        return False
    return bias is None or (is_dense(bias.meta["val"]) and bias.meta["val"].shape == base.shape[:1])


@dataclass(frozen=True)
class _Heads:
    """A layer whose result is split into heads and used in no other way: query, key or value.

    chain: the product and the reshapes after it, the last of which has (..., heads, size of a head)
    """

    x: Any
    weight: Any
    bias: Any
    chain: tuple[Any, ...]

    @property
    def number(self) -> int:
        heads: int = self.chain[-1].meta["val"].shape[-2]
        return heads


def _join_layers(graph: Any, fixed: set[Any], packing: Packing) -> None:
    """Have query, key and value of one input be one layer: of few rows, setting up each is what it costs."""
    groups: dict[tuple[Any, ...], list[_Heads]] = {}
    answers = returned(graph)  # these have memory and strides of its own, as in eager code
    for node in graph.nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            layer = _split_into_heads(node, fixed, packing)
            if layer is not None and answers.isdisjoint(layer.chain):
                *rows, _, size = layer.chain[-1].meta["val"].shape
                base = layer.x.args[0] if layer.x.target in _RESHAPES else layer.x
                # Sizes by their words: symbolic ones cannot be hashed.
                groups.setdefault((base, layer.bias is None, str(rows), size), []).append(layer)
    for layers in groups.values():
        weights = [layer.weight for layer in layers]
        if len(layers) > 1 and packing.is_worth(layers[0].x, *weights):
            _join(graph, layers)


def _split_into_heads(node: Any, fixed: set[Any], packing: Packing) -> _Heads | None:
    bias, x, weight = _linear(node)
    if weight not in fixed or (bias is not None and bias not in fixed):
        return None
    chain = [node]
    while len(chain[-1].users) == 1 and (after := next(iter(chain[-1].users))).target in _RESHAPES:
        chain.append(after)
    shape = chain[-1].meta["val"].shape
    if len(shape) < 3 or not all(isinstance(size, int) for size in shape[-2:]):
        return None
    if shape[-2] * shape[-1] != weight.meta["val"].shape[0] or not weight.meta["val"].is_contiguous():
        return None
    if not _is_layer(bias, x, weight.meta["val"], packing):
        return None
    # The joined layer takes over the sizes before the heads as one layer's reshape has them: none may be -1.
    return None if -1 in chain[-1].args[1][:-2] else _Heads(x, weight, bias, tuple(chain))


def _join(graph: Any, layers: list[_Heads]) -> None:
    places = {node: place for place, node in enumerate(graph.nodes)}
    earliest = min((layer.chain[-1] for layer in layers), key=places.__getitem__)
    x = min((layer.x for layer in layers), key=places.__getitem__)
    heads, size = sum(layer.number for layer in layers), earliest.meta["val"].shape[-1]
    with graph.inserting_before(earliest):
        weight = added(graph, aten.cat.default, [layer.weight for layer in layers], 0)
        transposed = added(graph, aten.permute.default, weight, [1, 0])
        if layers[0].bias is None:
            product = added(graph, aten.mm.default, x, transposed)
        else:
            bias = added(graph, aten.cat.default, [layer.bias for layer in layers], 0)
            product = added(graph, aten.addmm.default, bias, x, transposed)
        together = graph.call_function(aten.view.default, (product, [*earliest.args[1][:-2], heads, size]))
        before = earliest.meta["val"].shape[:-2]
        together.meta["val"] = product.meta["val"].view([*before, heads, size])
        start = 0
        for layer in layers:
            part = added(graph, aten.slice.Tensor, together, len(before), start, start + layer.number)
            layer.chain[-1].replace_all_uses_with(part)
            start += layer.number
    for layer in layers:
        for node in (*reversed(layer.chain), layer.chain[0].args[-1]):
            if not node.users:
                graph.erase_node(node)


_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def _without_reshapes(graph: Any, layer: Any) -> Any:
    """Replace a reshape, a layer of two dimensions and a reshape by one layer of three: else what follows
    could not be fused. Returns the layer as it is then."""
    before: Any = layer.args[0]
    after: Any = next(iter(layer.users), None)
    if len(layer.users) != 1 or after.target not in _RESHAPES or before.target not in _RESHAPES:
        return layer
    x = before.args[0]
    inner, outer = x.meta["val"].shape, after.meta["val"].shape
    same = [*zip(inner[:-1], outer[:-1], strict=False), (inner[-1], before.meta["val"].shape[-1])]
    same.append((outer[-1], layer.meta["val"].shape[-1]))
    if len(inner) != len(outer) or not all(statically_known_true(one == other) for one, other in same):
        return layer
    with graph.inserting_before(layer):
        whole = graph.call_function(layer.target, (x, *layer.args[1:]))
        whole.meta.update(after.meta)
    after.replace_all_uses_with(whole)
    graph.erase_node(after)
    graph.erase_node(layer)
    if not before.users:
        graph.erase_node(before)
    return whole


# In a graph for inference a batch norm is some of these, each with one number for each channel.
_AFFINE = (aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor)


def _with_norm_folded(graph: Any, conv: Any, fixed: set[Any]) -> Any:
    """A convolution whose weights have taken in what is multiplied with its channels, or added to them. After
    one of bfloat16 that is done in float32, and cast back."""
    weight, bias, transposed = conv.args[1], conv.args[2], conv.args[6]
    if transposed or not all(each is None or depends_on(each, fixed) for each in (weight, bias)):
        return conv
    if depends_on(conv.args[0], fixed):
        return conv
    channels, dtype = weight.meta["val"].shape[0], weight.meta["val"].dtype
    last, found = conv, []
    while (user := _only_user(last)) is not None and user.target in _AFFINE and not user.kwargs:
        one, other = user.args
        if other is last and user.target in _AFFINE[:2]:
            one, other = other, one
        if one is not last or not isinstance(other, torch.fx.Node) or not depends_on(other, fixed):
            break
        if not _is_one_per_channel(other.meta["val"], conv.meta["val"], channels):
            break
        found.append((user.target, other))
        last = user
    if found and last.meta["val"].dtype != dtype:
        last = _only_user(last)
        if last is None or last.target is not CAST or last.args[1] != dtype:
            return conv
    if not found:
        return conv
    with graph.inserting_before(last):
        weight, bias = (
            added(graph, CAST, each, torch.float32) if each is not None and dtype != torch.float32 else each
            for each in (weight, bias)
        )
        for target, other in found:
            flat = added(graph, aten.reshape.default, other, [channels])
            if target in (aten.mul.Tensor, aten.div.Tensor):
                shape = [channels] + [1] * (weight.meta["val"].dim() - 1)
                weight = added(graph, target, weight, added(graph, aten.reshape.default, other, shape))
                bias = None if bias is None else added(graph, target, bias, flat)
            elif bias is not None:
                bias = added(graph, target, bias, flat)
            else:
                bias = flat if target is aten.add.Tensor else added(graph, aten.neg.default, flat)
        weight, bias = (
            added(graph, CAST, each, dtype) if each is not None and each.meta["val"].dtype != dtype else each
            for each in (weight, bias)
        )
        assumed = graph.call_function(conv.target, (conv.args[0], weight, bias, *conv.args[3:]))
        assumed.meta.update(last.meta)
    last.replace_all_uses_with(assumed)
    while last is not conv:
        gone, last = last, next(each for each in last.all_input_nodes if not depends_on(each, fixed))
        graph.erase_node(gone)
    graph.erase_node(conv)
    return assumed


def _only_user(node: Any) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_one_per_channel(value: Any, result: Any, channels: int) -> bool:
    """Whether a tensor has one number for each channel of a convolution's result."""
    spatial = result.dim() - 2
    shapes = ([channels] + [1] * spatial, [1, channels] + [1] * spatial)
    dtypes = {torch.float32} if result.dtype == torch.float32 else {torch.float32, torch.bfloat16}
    return value.dtype in dtypes and result.dtype in dtypes and list(value.shape) in shapes


def _is_given_away(graph: Any, weight: Any, fixed: set[Any]) -> bool:
    """Whether a call returns what a weight is made of, so that it is made in the graph, at each call."""
    given = {node for node in returned(graph) if depends_on(node, fixed)}
    return bool((_made_of([weight]) & _made_of(given)) - fixed)


def _made_of(nodes: Iterable[Any]) -> set[Any]:
    """The nodes themselves and all before them."""
    found: set[Any] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _pack_convolution(graph: Any, node: Any, fixed: set[Any], packing: Packing) -> None:
    x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
    value, base = x.meta["val"], weight.meta["val"]
    if transposed or not depends_on(weight, fixed) or value.device.type != "cpu":
        return
    if value.dim() not in (4, 5) or depends_on(x, fixed):
        return
    if not all(statically_known_true(size >= 1) for size in (*base.shape, *value.shape)):
        return
    if bias is not None and bias.meta["val"].dtype != base.dtype:
        return
    if _is_given_away(graph, weight, fixed):
        return
    # Where sizes are not known these are the sample's: for others it may be packed anew, at each call.
    sizes = [value_in_sample(size, _UNKNOWN) for size in value.shape]
    last = node
    with graph.inserting_before(node):
        weight = added(graph, finite, weight)
        if packing.cpu.has_fma and winograd.is_worth_points(node):
            following = _only_user(node)
            relu = following is not None and following.target is aten.relu.default
            last = following if relu else node
            packed = None if packing.cpu.has_avx512 else (padding, sizes)
            points = added(graph, winograd.points_here, weight, packed)
            channels = base.shape[0]
            layer = graph.call_function(winograd.convolution, (x, points, bias, padding, channels, relu))
        elif packing.cpu.has_avx512 and is_ours(node):
            layer = own_convolution(graph, node, weight)
        else:
            how = (padding, stride, dilation, groups)
            packed = graph.call_function(mkldnn._reorder_convolution_weight.default, (weight, *how, sizes))
            packed.meta["val"] = base
            layer = graph.call_function(
                mkldnn._convolution_pointwise.default, (x, packed, bias, *how, "none", [], "")
            )
        layer.meta.update(last.meta)
    last.replace_all_uses_with(layer)
    if last is not node:
        graph.erase_node(last)
    graph.erase_node(node)
