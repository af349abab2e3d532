"""Divisions of integers by what may be zero: there torch 2.11 compiles an instruction that ends the process.

Later ones look at the divisor first.
"""

from __future__ import annotations

from typing import Any

import torch

from hatch_precompile.tracing.dynamo import last_line

__all__ = ["divisions_are_checked", "unchecked_division"]

_DIVIDING = {
    *("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod"),
    *("prims::div", "prims::remainder", "prims::fmod"),
}


def divisions_are_checked() -> bool:
    """Whether a kernel looks at a divisor before it divides integers."""
    from torch._inductor.codegen.cpp import CppOverrides

    return "floor_divide_integral" in CppOverrides.floordiv("a", "b")


def unchecked_division(graph: Any) -> str:
    """Why a graph must not be compiled; "" for one that divides no integers, and for a torch that looks."""
    if divisions_are_checked():
        return ""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _DIVIDING:
            value, divisor = node.meta.get("val"), node.args[1]
            whole = isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
            if whole and (isinstance(divisor, torch.fx.Node) or not divisor):
                line = last_line(node.stack_trace or "")
                return (
                    f"it divides integers by others{line and f' at {line}'}, and torch {torch.__version__} "
                    "compiles that without a look at the divisor, so that a zero would end the process; "
                    "divide by a number, or numbers of floating point, or build with torch 2.13 or newer"
                )
    return ""
