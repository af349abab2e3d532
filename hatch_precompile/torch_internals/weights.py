"""`weights = "fixed"`: what depends on weights alone leaves the graph, to be computed once for each instance.

The graph keeps what is done at each call. What it takes from the other part, such as weights in the layout
that oneDNN multiplies fastest, it has as more inputs, and the runtime computes those from the plan
(templates/weights.py). The nearest relative is AOTInductor's constant graph, which runs once at load.
Seen in torch 2.13.0 (torch/_inductor/constant_folding.py, torch/_inductor/fx_passes/mkldnn_fusion.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from hatch_precompile.runtime import runtime
from hatch_precompile.torch_internals import panels
from hatch_precompile.torch_internals.precision import narrowed

__all__ = ["Plan", "computed", "prepared_inputs", "separate"]

aten, mkldnn, prims = torch.ops.aten, torch.ops.mkldnn, torch.ops.prims

# Multiplications of a layer from which packing its weights makes up for oneDNN's set-up, and the rows of one
# whose number of rows is not known.
_WORTH_PACKING = 1 << 20
_ROWS = 16
# Numbers of a weight from which panels are worth it.
_WORTH_PANELS = 1 << 14

_PREPARED = "precompile_prepared_"

# They cost nothing: the graph makes them itself, where inductor sees what lies behind them.
_VIEWS = {
    *(aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default, aten.reshape.default),
    *(aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int),
    *(aten.slice.Tensor, aten.alias.default, aten.detach.default, aten._unsafe_view.default),
}


@dataclass(frozen=True)
class Plan:
    """What becomes of a graph's inputs at a call.

    kept: the numbers of those that the library takes, first
    steps: (operator, arguments, keyword arguments) of what depends on weights alone; an argument that is a
    tensor is ("input", number) or ("step", number), one that is a dtype, device, layout or memory format
    (that word, its name)
    outputs: the numbers of the steps whose tensors the library takes next
    watched: the numbers of the inputs that the steps read
    """

    kept: tuple[int, ...]
    steps: tuple[tuple[str, Any, Any], ...]
    outputs: tuple[int, ...]
    watched: tuple[int, ...]

    def in_panels_everywhere(self) -> Plan:
        """The same, with nothing packed as the processor is."""
        here, always = (panels.STEPS[step] for step in (panels.packed_here, panels.in_panels))
        steps = ((always if name == here else name, *arguments) for name, *arguments in self.steps)
        return replace(self, steps=tuple(steps))


def separate(
    gm: Any,
    inputs: Sequence[Any],
    weights: Iterable[int],
    *,
    has_bfloat16: bool = False,
    has_fma: bool = False,
    has_avx512: bool = False,
    has_vnni: bool = False,
    narrow: bool = False,
) -> tuple[list[Any], Plan] | None:
    """Take what depends on weights alone out of a graph, which is changed.

    weights: the numbers of the inputs that are parameters and buffers; has_bfloat16: whether the processor
    multiplies it, so that such layers are packed too; has_fma, has_vnni: whether it has the instructions for
    our layers, of float32 and of int8; has_avx512: whether only those of a few rows are ours; narrow: whether
    float32 layers become bfloat16. Returns the inputs that the graph has now, and the plan; None, and the
    graph as it was, where nothing depends on weights alone.
    """
    graph = gm.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    fixed = {placeholders[number] for number in weights} - _written(graph)
    fixed = {node for node in fixed if _is_dense(node.meta.get("val"))}
    _pack_layers(graph, fixed, _Packing(has_bfloat16, has_fma, has_avx512, has_vnni, narrow))
    apart = _apart(graph, fixed)
    _make_once(graph, apart)
    taken = _taken(graph, apart)
    if not taken:
        return None
    numbers = {node: number for number, node in enumerate(placeholders)}
    steps: dict[Any, int] = {}
    written = []
    for node in (node for node in graph.nodes if node in apart):
        written.append(_step(node, numbers, steps))
        steps[node] = len(steps)
    outputs = tuple(steps[node] for node in taken)
    watched = {each for node in apart for each in node.all_input_nodes if each in numbers}
    added = _as_inputs(graph, taken, placeholders[-1])
    for node in reversed([node for node in graph.nodes if node in apart]):
        graph.erase_node(node)
    kept = []
    for number, node in enumerate(placeholders):
        if node in fixed and not node.users:
            graph.erase_node(node)
        else:
            kept.append(number)
    graph.lint()
    gm.recompile()
    plan = Plan(tuple(kept), tuple(written), outputs, tuple(sorted(numbers[node] for node in watched)))
    return [*(inputs[number] for number in kept), *(node.meta["val"] for node in added)], plan


def _written(graph: Any) -> set[Any]:
    """The inputs that the graph itself changes."""
    found = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    found.add(value)
        if node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload):
            found.update(node.all_input_nodes)  # who knows
    return found


def _is_dense(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    )


def _apart(graph: Any, fixed: set[Any]) -> set[Any]:
    """The nodes that depend on weights alone, but for views at the end of them."""
    found: set[Any] = set()
    for node in graph.nodes:
        needs = node.all_input_nodes
        if needs and all(each in fixed or each in found for each in needs) and _can_be_a_step(node):
            found.add(node)
    # What a call returns is the caller's, to be changed.
    found -= _returned(graph)
    while missing := [
        node for node in found if any(e not in fixed and e not in found for e in node.all_input_nodes)
    ]:
        found.difference_update(missing)
    while views := [node for node in graph.nodes if node in found and _is_view_for_others(node, found)]:
        for node in views:
            _split_view(graph, node, found)
    # What nothing needs any more.
    for node in reversed(graph.nodes):
        if node in found and not node.users:
            found.discard(node)
    return found


def _make_once(graph: Any, apart: set[Any]) -> None:
    """Have what is made of the same weights in the same way be one: a layer may be called many times."""
    made: dict[str, Any] = {}
    for node in [node for node in graph.nodes if node in apart]:
        known = made.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.erase_node(node)
            apart.discard(node)


def _returned(graph: Any) -> set[Any]:
    """The nodes whose memory a call of the graph returns."""
    (output,) = graph.find_nodes(op="output")
    found: set[Any] = set()
    pending = list(output.all_input_nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes if node.target in _VIEWS else []
    return found


def _is_view_for_others(node: Any, found: set[Any]) -> bool:
    return node.target in _VIEWS and not found.issuperset(node.users)


def _split_view(graph: Any, node: Any, found: set[Any]) -> None:
    """Have the graph make a view itself, beside the one that steps use."""
    if found.isdisjoint(node.users):
        found.discard(node)
        return
    with graph.inserting_after(node):
        own = graph.node_copy(node)
    node.replace_all_uses_with(own, lambda user: user not in found and user is not own)


def _taken(graph: Any, apart: set[Any]) -> list[Any]:
    """The nodes of this part whose tensors the rest of the graph takes."""
    return [node for node in graph.nodes if node in apart and not apart.issuperset(node.users)]


def _can_be_a_step(node: Any) -> bool:
    target = node.target
    if node.op == "call_function" and target in panels.STEPS:
        return True
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if target is not _CAST and (target.namespace not in ("aten", "mkldnn") or target._schema.is_mutable):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or not _is_dense(node.meta.get("val")):
        return False
    try:
        _encoded((node.args, node.kwargs), {}, {}, check=True)
    except TypeError:
        return False
    return True


_CAST = prims.convert_element_type.default


def _step(node: Any, numbers: dict[Any, int], steps: dict[Any, int]) -> tuple[str, Any, Any]:
    if node.target is _CAST:  # whose operator is there only once torch's compiler was imported
        tensor, dtype = node.args
        return str(aten._to_copy.default), *_encoded(([tensor], {"dtype": dtype}), numbers, steps)
    args, kwargs = _encoded((node.args, dict(node.kwargs)), numbers, steps)
    return panels.STEPS.get(node.target, str(node.target)), args, kwargs


_NAMED = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory format",
}


def _encoded(value: Any, numbers: dict[Any, int], steps: dict[Any, int], *, check: bool = False) -> Any:
    """A value as plain data for the plan. Raises TypeError for one that cannot be such."""
    if isinstance(value, torch.fx.Node):
        if check:
            return None
        return ("step", steps[value]) if value in steps else ("input", numbers[value])
    if isinstance(value, (list, tuple)):
        return [_encoded(each, numbers, steps, check=check) for each in value]
    if isinstance(value, dict):
        return {key: _encoded(each, numbers, steps, check=check) for key, each in value.items()}
    if type(value) in _NAMED:
        return (_NAMED[type(value)], str(value).removeprefix("torch."))
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(value)


def _as_inputs(graph: Any, nodes: Sequence[Any], last: Any) -> list[Any]:
    added = []
    for number, node in enumerate(nodes):
        with graph.inserting_after(last):
            last = graph.placeholder(f"{_PREPARED}{number}")
        last.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(last, lambda user, ours=last: user is not ours)
        added.append(last)
    return added


def computed(plan: Plan, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What the library takes after its inputs, as the runtime computes it."""
    tensors: list[torch.Tensor] = runtime("weights").computed(plan.steps, plan.outputs, inputs)
    return tensors


@contextlib.contextmanager
def prepared_inputs() -> Iterator[None]:
    """Have inductor not look at the strides of what a plan gives: packed weights have none."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    write = PythonWrapperCodegen.codegen_input_size_asserts

    def write_for_others(self: Any) -> None:
        write(self)
        for name in [name for name in self._pending_input_asserts if name.startswith(_PREPARED)]:
            del self._pending_input_asserts[name]

    PythonWrapperCodegen.codegen_input_size_asserts = write_for_others
    try:
        yield
    finally:
        PythonWrapperCodegen.codegen_input_size_asserts = write


# -- layers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Packing:
    """has_bfloat16: whether layers of bfloat16 are packed; has_fma, has_vnni: whether those of a few rows
    are ours, of float32 and of int8; has_avx512: whether those of more rows are not, but for int8; narrow:
    whether those of float32 become such of bfloat16."""

    has_bfloat16: bool
    has_fma: bool
    has_avx512: bool
    has_vnni: bool
    narrow: bool

    def takes(self, *dtypes: torch.dtype) -> bool:
        return set(dtypes) == {torch.float32} or (self.has_bfloat16 and set(dtypes) == {torch.bfloat16})

    def is_ours(self, x: Any) -> bool:
        """Whether layers of this input are for our own functions."""
        dtype = x.meta["val"].dtype
        if dtype == torch.uint8:
            return self.has_vnni and _has_few_rows(x)
        ours = dtype == torch.float32 and self.has_fma and not self.narrow
        return ours and (not self.has_avx512 or _has_few_rows(x))

    def is_worth(self, x: Any, *weights: Any) -> bool:
        """Whether packing them makes up for what it costs at each call."""
        numel = sum(weight.meta["val"].numel() for weight in weights)
        if self.is_ours(x):
            return bool(numel >= _WORTH_PANELS)
        rows = x.meta["val"].shape[0]
        return bool((rows if isinstance(rows, int) else _ROWS) * numel >= _WORTH_PACKING)


def _pack_layers(graph: Any, fixed: set[Any], packing: _Packing) -> None:
    """Pack the weights of layers for oneDNN; inductor's own patterns then fuse what follows them."""
    _join_layers(graph, fixed, packing)
    for node in list(graph.nodes):
        if node.target is aten.convolution.default:
            _pack_convolution(graph, _with_norm_folded(graph, node, fixed), fixed)
        elif node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            _pack_linear(graph, node, fixed, packing)
        elif node.target is aten._int_mm.default:
            _pack_int8(graph, node, fixed, packing)


def _has_few_rows(x: Any) -> bool:
    rows = x.meta["val"].shape[0]
    return isinstance(rows, int) and rows <= panels.FEW_ROWS


def _depends_on(node: Any, fixed: set[Any]) -> bool:
    """Whether a tensor depends on weights alone."""
    if node in fixed:
        return True
    if not isinstance(node, torch.fx.Node) or not node.all_input_nodes or not _can_be_a_step(node):
        return False
    return all(_depends_on(each, fixed) for each in node.all_input_nodes)


def _added(graph: Any, target: Any, *args: Any) -> Any:
    """A new node, with what it gives."""
    node = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda each: each.meta["val"])
    node.meta["val"] = target(*values)
    return node


def _linear(node: Any) -> tuple[Any, Any, Any]:
    """Bias, input and weight, as a layer has it, of a product; each None where there is none."""
    bias, x, turned = node.args if node.target is aten.addmm.default else (None, *node.args)
    return bias, x, turned.args[0] if turned.target in (aten.permute.default, aten.t.default) else None


def _pack_linear(graph: Any, node: Any, fixed: set[Any], packing: _Packing) -> None:
    bias, x, weight = _linear(node)
    if weight is None or not _depends_on(weight, fixed) or not _is_layer(bias, x, weight, packing):
        return
    if not packing.is_worth(x, weight):
        return
    narrow = packing.narrow and weight.meta["val"].dtype == torch.float32
    if packing.is_ours(x):
        with graph.inserting_before(node):
            packed = _added(graph, panels.in_panels if _has_few_rows(x) else panels.packed_here, weight)
            columns = weight.meta["val"].shape[0]
            layer = graph.call_function(panels.layer, (x, packed, bias, columns))
            layer.meta.update(node.meta)
        node.replace_all_uses_with(layer)
        graph.erase_node(node)
        return
    with graph.inserting_before(node):
        if narrow:
            weight = _added(graph, _CAST, weight, torch.bfloat16)
        packed = graph.call_function(mkldnn._reorder_linear_weight.default, (weight,))
        packed.meta["val"] = weight.meta["val"]
        layer = graph.call_function(mkldnn._linear_pointwise.default, (x, packed, bias, "none", [], ""))
        layer.meta.update(node.meta)
    node.replace_all_uses_with(layer)
    graph.erase_node(node)
    layer = _without_reshapes(graph, layer)
    if narrow:
        narrowed(graph, layer, 0)


def _pack_int8(graph: Any, node: Any, fixed: set[Any], packing: _Packing) -> None:
    _, x, weight = _linear(node)
    if weight is None or not packing.is_ours(x) or not _depends_on(weight, fixed):
        return
    base = weight.meta["val"]
    if base.dtype != torch.int8 or not base.is_contiguous() or min(base.shape) < 1:
        return
    with graph.inserting_before(node):
        packed = panels.packed_int8(graph, weight)
        layer = graph.call_function(panels.int8_layer, (x, packed, base.shape[0]))
        layer.meta.update(node.meta)
    node.replace_all_uses_with(layer)
    graph.erase_node(node)


def _is_layer(bias: Any, x: Any, weight: Any, packing: _Packing) -> bool:
    value, base = x.meta["val"], weight.meta["val"]
    if not packing.takes(base.dtype, value.dtype) or not base.is_contiguous():
        return False
    if min(base.shape) < 1 or value.device.type != "cpu":
        return False
    return bias is None or (_is_dense(bias.meta["val"]) and bias.meta["val"].shape == base.shape[:1])


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


def _join_layers(graph: Any, fixed: set[Any], packing: _Packing) -> None:
    """Have query, key and value of one input be one layer: of few rows, setting up each is what it costs."""
    groups: dict[tuple[Any, ...], list[_Heads]] = {}
    returned = _returned(graph)  # has memory and strides of its own, as in eager code
    for node in graph.nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            layer = _split_into_heads(node, fixed, packing)
            if layer is not None and returned.isdisjoint(layer.chain):
                *rows, _, size = layer.chain[-1].meta["val"].shape
                base = layer.x.args[0] if layer.x.target in _RESHAPES else layer.x
                # Sizes by their words: symbolic ones cannot be hashed.
                groups.setdefault((base, layer.bias is None, str(rows), size), []).append(layer)
    for layers in groups.values():
        weights = [layer.weight for layer in layers]
        if len(layers) > 1 and packing.is_worth(layers[0].x, *weights):
            _join(graph, layers)


def _split_into_heads(node: Any, fixed: set[Any], packing: _Packing) -> _Heads | None:
    bias, x, weight = _linear(node)
    if weight not in fixed or (bias is not None and bias not in fixed):
        return None
    chain = [node]
    while len(chain[-1].users) == 1 and (after := next(iter(chain[-1].users))).target in _RESHAPES:
        chain.append(after)
    shape = chain[-1].meta["val"].shape
    if len(shape) < 3 or not all(isinstance(size, int) for size in shape[-2:]):
        return None
    if shape[-2] * shape[-1] != weight.meta["val"].shape[0] or not _is_layer(bias, x, weight, packing):
        return None
    # The sizes before the heads are written for all of them as one has them.
    return None if -1 in chain[-1].args[1][:-2] else _Heads(x, weight, bias, tuple(chain))


def _join(graph: Any, layers: list[_Heads]) -> None:
    places = {node: place for place, node in enumerate(graph.nodes)}
    earliest = min((layer.chain[-1] for layer in layers), key=places.__getitem__)
    x = min((layer.x for layer in layers), key=places.__getitem__)
    heads, size = sum(layer.number for layer in layers), earliest.meta["val"].shape[-1]
    with graph.inserting_before(earliest):
        weight = _added(graph, aten.cat.default, [layer.weight for layer in layers], 0)
        turned = _added(graph, aten.permute.default, weight, [1, 0])
        if layers[0].bias is None:
            product = _added(graph, aten.mm.default, x, turned)
        else:
            bias = _added(graph, aten.cat.default, [layer.bias for layer in layers], 0)
            product = _added(graph, aten.addmm.default, bias, x, turned)
        together = graph.call_function(aten.view.default, (product, [*earliest.args[1][:-2], heads, size]))
        before = earliest.meta["val"].shape[:-2]
        together.meta["val"] = product.meta["val"].view([*before, heads, size])
        start = 0
        for layer in layers:
            part = _added(graph, aten.slice.Tensor, together, len(before), start, start + layer.number)
            layer.chain[-1].replace_all_uses_with(part)
            start += layer.number
    for layer in layers:
        for node in (*reversed(layer.chain), layer.chain[0].args[-1]):
            if not node.users:
                graph.erase_node(node)


_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def _without_reshapes(graph: Any, layer: Any) -> Any:
    """A layer of three dimensions is a reshape, one of two and a reshape: what follows could not be fused.
    Returns the layer as it is then."""
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
    """A convolution whose weights have taken in what is multiplied with its channels, or added to them."""
    weight, bias, transposed = conv.args[1], conv.args[2], conv.args[6]
    if transposed or not all(each is None or _depends_on(each, fixed) for each in (weight, bias)):
        return conv
    channels = weight.meta["val"].shape[0]
    last, found = conv, []
    while len(last.users) == 1:
        user = next(iter(last.users))
        if user.target not in _AFFINE or user.kwargs:
            break
        one, other = user.args
        if other is last and user.target in _AFFINE[:2]:
            one, other = other, one
        if one is not last or not isinstance(other, torch.fx.Node) or not _depends_on(other, fixed):
            break
        if not _is_one_per_channel(other.meta["val"], conv.meta["val"], channels):
            break
        found.append((user.target, other))
        last = user
    if not found:
        return conv
    with graph.inserting_before(last):
        for target, other in found:
            flat = _added(graph, aten.reshape.default, other, [channels])
            if target in (aten.mul.Tensor, aten.div.Tensor):
                shape = [channels] + [1] * (weight.meta["val"].dim() - 1)
                weight = _added(graph, target, weight, _added(graph, aten.reshape.default, other, shape))
                bias = None if bias is None else _added(graph, target, bias, flat)
            elif bias is not None:
                bias = _added(graph, target, bias, flat)
            else:
                bias = flat if target is aten.add.Tensor else _added(graph, aten.neg.default, flat)
        folded = graph.call_function(conv.target, (conv.args[0], weight, bias, *conv.args[3:]))
        folded.meta.update(last.meta)
    last.replace_all_uses_with(folded)
    while last is not conv:
        gone, last = last, next(each for each in last.all_input_nodes if not _depends_on(each, fixed))
        graph.erase_node(gone)
    graph.erase_node(conv)
    return folded


def _is_one_per_channel(value: Any, result: Any, channels: int) -> bool:
    """Whether a tensor has one number for each channel of a convolution's result, which has its dtype."""
    spatial = result.dim() - 2
    shapes = ([channels] + [1] * spatial, [1, channels] + [1] * spatial)
    return value.dtype == result.dtype == torch.float32 and list(value.shape) in shapes


def _pack_convolution(graph: Any, node: Any, fixed: set[Any]) -> None:
    x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
    value, base = x.meta["val"], weight.meta["val"]
    if transposed or not _depends_on(weight, fixed) or not _is_dense(value) or value.dim() not in (4, 5):
        return
    if value.dtype != torch.float32 or base.dtype != torch.float32 or min(*base.shape, *value.shape) < 1:
        return
    if bias is not None and bias.meta["val"].dtype != torch.float32:
        return
    with graph.inserting_before(node):
        how = (padding, stride, dilation, groups)
        packed = graph.call_function(
            mkldnn._reorder_convolution_weight.default, (weight, *how, list(value.shape))
        )
        packed.meta["val"] = base
        layer = graph.call_function(
            mkldnn._convolution_pointwise.default, (x, packed, bias, *how, "none", [], "")
        )
        layer.meta.update(node.meta)
    node.replace_all_uses_with(layer)
    graph.erase_node(node)
