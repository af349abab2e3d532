"""`weights = "fixed"`: what depends on weights alone leaves the graph, to be computed once for each instance.

The graph keeps what is done at each call. What it takes from the other part, such as weights in the layout
that oneDNN multiplies fastest, it has as more inputs, and the runtime computes those from the prepack graph
(templates/graphs/weights.py). The nearest relative is AOTInductor's constant graph, which runs once at load.
Seen in torch 2.13.0 (torch/_inductor/constant_folding.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.inductor.prepacking.steps import (
    EVERYWHERE,
    VIEWS,
    as_step,
    can_be_a_step,
    is_dense,
    returned,
)
from hatch_precompile.inductor.prepacking.strides import keep_strides
from hatch_precompile.runtime import weights

__all__ = ["WATCHED", "PrepackGraph", "computed", "prepared_inputs", "separate"]

_PREPARED = "precompile_prepared_"


@dataclass(frozen=True)
class PrepackGraph:
    """What becomes of a graph's inputs at a call; a `.weights` file holds these fields.

    kept: the numbers of those that the library takes, first
    steps: (operator, arguments, keyword arguments) of what depends on weights alone; an argument that is a
    tensor is ("input", number) or ("step", number), one that is a dtype, device, layout or memory format
    (that word, its name); operators that are no torch's are in `_OWN` of templates/graphs/weights.py or, with
    the name of their backend before a colon as in `x86_64:in_panels`, in its steps.py
    outputs: the numbers of the steps whose tensors the library takes next
    watched: the numbers of the inputs that the steps read
    """

    kept: tuple[int, ...]
    steps: tuple[tuple[str, Any, Any], ...]
    outputs: tuple[int, ...]
    watched: tuple[int, ...]

    def the_same_everywhere(self) -> PrepackGraph:
        """The same, with each step that asks the processor replaced by the one for every processor."""
        steps = ((EVERYWHERE.get(name, name), *arguments) for name, *arguments in self.steps)
        return replace(self, steps=tuple(steps))


# Steps that may refuse a weight -> the operator that gives any back, for the build's own calls.
_OF_ANY = {"finite": "aten.alias.default"}

WATCHED = files(__package__).joinpath("watched.h").read_text("utf-8")
"""The function of a library with a prepack graph that the runtime looks for changes with."""


def separate(
    gm: Any,
    inputs: Sequence[Any],
    weights: Iterable[int],
    prepack: Callable[[Any, set[Any]], None],
) -> tuple[list[Any], PrepackGraph] | None:
    """Take what depends on weights alone out of a graph, which is changed.

    weights: the numbers of the inputs that are parameters and buffers
    prepack: changes a graph, which it is given with the nodes of its weights (`Compiler.prepack`)
    Returns the inputs that the graph has now, and the prepack graph; None where nothing depends on weights
    alone.
    """
    graph = gm.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    fixed = {placeholders[number] for number in weights} - _written(graph)
    fixed = {node for node in fixed if is_dense(node.meta.get("val"))}
    prepack(graph, fixed)
    apart = _apart(graph, fixed)
    _make_once(graph, apart)
    keep_strides(graph)
    taken = _taken(graph, apart)
    if not taken:
        return None
    numbers = {node: number for number, node in enumerate(placeholders)}
    steps: dict[Any, int] = {}
    written = []
    for node in (node for node in graph.nodes if node in apart):
        written.append(as_step(node, numbers, steps))
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
    prepack_graph = PrepackGraph(
        tuple(kept), tuple(written), outputs, tuple(sorted(numbers[node] for node in watched))
    )
    return [*(inputs[number] for number in kept), *(node.meta["val"] for node in added)], prepack_graph


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


def _apart(graph: Any, fixed: set[Any]) -> set[Any]:
    """The nodes that depend on weights alone, but for views at the end of them."""
    found: set[Any] = set()
    for node in graph.nodes:
        needs = node.all_input_nodes
        if needs and all(each in fixed or each in found for each in needs) and can_be_a_step(node):
            found.add(node)
    # What a call returns is the caller's, who may change it: it is made at each call. So is all that it is
    # made of, because inductor may see that it is the same.
    pending = list(returned(graph))
    while pending:
        node = pending.pop()
        if node in found:
            found.discard(node)
            pending += node.all_input_nodes
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


def _is_view_for_others(node: Any, found: set[Any]) -> bool:
    return node.target in VIEWS and not found.issuperset(node.users)


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


def _as_inputs(graph: Any, nodes: Sequence[Any], last: Any) -> list[Any]:
    added = []
    for number, node in enumerate(nodes):
        with graph.inserting_after(last):
            last = graph.placeholder(f"{_PREPARED}{number}")
        last.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(last, lambda user, ours=last: user is not ours)
        added.append(last)
    return added


def computed(prepack_graph: PrepackGraph, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What the library takes after its inputs, as the runtime computes it, of whatever weights."""
    steps = [(_OF_ANY.get(name, name), *arguments) for name, *arguments in prepack_graph.steps]
    tensors: list[torch.Tensor] = weights.computed(steps, prepack_graph.outputs, inputs)
    return tensors


def prepared_inputs() -> AbstractContextManager[Any]:
    """Have inductor not look at the strides of what a prepack graph gives: packed weights have none."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    write = PythonWrapperCodegen.codegen_input_size_asserts

    def write_for_others(self: Any) -> None:
        inputs = self.get_graph_inputs()
        others = {name: each for name, each in inputs.items() if not name.startswith(_PREPARED)}
        self.get_graph_inputs = lambda: others
        try:
            write(self)
        finally:
            del self.get_graph_inputs

    return patch.object(PythonWrapperCodegen, "codegen_input_size_asserts", write_for_others)
