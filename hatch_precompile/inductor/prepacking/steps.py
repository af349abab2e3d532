"""What of a graph can be a step: is computed once of fixed weights, by templates/graphs/weights.py.

Seen in torch 2.13.0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

__all__ = [
    "CAST",
    "EVERYWHERE",
    "VIEWS",
    "added",
    "as_step",
    "can_be_a_step",
    "depends_on",
    "is_dense",
    "may_share_memory",
    "own_step",
    "returned",
]

aten, prims = torch.ops.aten, torch.ops.prims

_OWN: dict[Callable[..., Any], str] = {}
"""Targets of nodes that are no operators of torch's, with the runtime's names for them."""
EVERYWHERE: dict[str, str] = {}
"""Names of steps that ask the processor -> of the steps that fit every processor of the variant."""


def own_step(target: Callable[..., Any], name: str, *, everywhere: str = "") -> None:
    """Have a target of nodes be a step.

    name: of the function in the runtime; that of a backend, whose folder in templates/backends/ has it, has
    the name of the backend before it, as in `x86_64:in_panels`
    everywhere: where the step asks the processor, the one that does not
    """
    _OWN[target] = name
    if everywhere:
        EVERYWHERE[name] = everywhere


VIEWS = {
    *(aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default, aten.reshape.default),
    *(aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int),
    *(aten.slice.Tensor, aten.alias.default, aten.detach.default, aten._unsafe_view.default),
}
"""They cost nothing: the graph makes them itself, where inductor sees what lies behind them."""

CAST = prims.convert_element_type.default


def is_dense(value: Any) -> bool:
    """Whether it is a tensor in this machine's memory, with sizes and strides that are numbers."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    )


def returned(graph: Any) -> set[Any]:
    """The nodes whose memory a call of the graph returns."""
    (output,) = graph.find_nodes(op="output")
    found: set[Any] = set()
    pending = list(output.all_input_nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes if may_share_memory(node) else []
    return found


def may_share_memory(node: Any) -> bool:
    """Whether what a node gives may lie in the memory of what it is given."""
    target = node.target
    if target is operator.getitem or target in VIEWS or target is CAST:
        return True
    is_operator = isinstance(target, torch._ops.OpOverload)
    return is_operator and any(each.alias_info is not None for each in target._schema.returns)


def depends_on(node: Any, fixed: set[Any]) -> bool:
    """Whether a tensor depends on weights alone."""
    pending, seen = [node], set(fixed)
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        if not isinstance(each, torch.fx.Node) or not each.all_input_nodes or not can_be_a_step(each):
            return False
        seen.add(each)
        pending += each.all_input_nodes
    return True


def can_be_a_step(node: Any) -> bool:
    """Whether the runtime could do what a node does: by its operator, and with arguments that are data."""
    target = node.target
    if node.op == "call_function" and target in _OWN:
        return True
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if target is not CAST and (target.namespace not in ("aten", "mkldnn") or target._schema.is_mutable):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or not is_dense(node.meta.get("val")):
        return False
    try:
        _encoded((node.args, node.kwargs), {}, {}, check=True)
    except TypeError:
        return False
    return True


def as_step(node: Any, numbers: dict[Any, int], steps: dict[Any, int]) -> tuple[str, Any, Any]:
    """A node as a step of the prepack graph. numbers: of the graph's inputs; steps: of nodes before it."""
    if node.target is CAST:  # whose operator is there only once torch's compiler was imported
        tensor, dtype = node.args
        return str(aten._to_copy.default), *_encoded(([tensor], {"dtype": dtype}), numbers, steps)
    args, kwargs = _encoded((node.args, dict(node.kwargs)), numbers, steps)
    return _OWN.get(node.target, str(node.target)), args, kwargs


_NAMED = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory format",
}


def _encoded(value: Any, numbers: dict[Any, int], steps: dict[Any, int], *, check: bool = False) -> Any:
    """A value as plain data for the prepack graph. Raises TypeError for one that cannot be such."""
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


def added(graph: Any, target: Any, *args: Any) -> Any:
    """A new node, with what it gives."""
    node = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda each: each.meta["val"])
    node.meta["val"] = target(*values)
    return node
