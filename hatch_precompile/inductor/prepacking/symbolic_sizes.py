"""Sizes and strides as arguments of nodes: numbers as they are, others as nodes that compute them.

Seen in torch 2.11.0 and 2.13.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.proxy import GraphAppendingTracer, Proxy

from hatch_precompile.torch_versions import way

__all__ = ["as_arguments"]


def as_arguments(graph: Any, sizes: Sequence[Any]) -> list[Any]:
    """The arguments for sizes of this graph's tensors. Nodes are put where the graph inserts nodes now."""
    if not any(isinstance(size, torch.SymInt) for size in sizes):
        return list(sizes)
    if way("sizes as nodes of a graph") == "a method":
        return list(graph.materialize_symints(sizes))
    symbols = _symbols(graph)
    return [_computed(size, symbols) if isinstance(size, torch.SymInt) else size for size in sizes]


def _symbols(graph: Any) -> dict[Any, Proxy]:
    """Each symbol that is an input of the graph, by its name in expressions."""
    tracer = GraphAppendingTracer(graph)
    values = [(node, node.meta.get("val")) for node in graph.find_nodes(op="placeholder")]
    return {
        value.node.expr: Proxy(node, tracer)
        for node, value in values
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol
    }


def _computed(size: Any, symbols: dict[Any, Proxy]) -> Any:
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    found: Any = sympy_interp(PythonReferenceAnalysis, symbols, size.node.expr)
    node = found.node
    _note_value(node)
    return node


def _note_value(node: Any) -> None:
    """Note of a node, and of those that it is computed from, which size it is."""
    if "val" in node.meta:
        return
    for each in node.all_input_nodes:
        _note_value(each)
    given = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in node.args]
    node.meta["val"] = node.target(*given)
