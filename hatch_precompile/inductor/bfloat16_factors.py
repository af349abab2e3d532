"""What the factors of a graph's products are rounded to, which verification allows for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["multiplied_as", "rounds_factors"]

# By name, without their overloads.
_PRODUCTS = {
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"),
    *("mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise"),
    "aten::_scaled_dot_product_flash_attention_for_cpu",
}
# Products of our own: a target of nodes, and the type.
_OWN: dict[Callable[..., Any], str] = {}


def rounds_factors(target: Callable[..., Any], dtype: str) -> None:
    """Of a target of nodes. dtype: "int8" or "bfloat16"."""
    _OWN[target] = dtype


def multiplied_as(graph: Any) -> str:
    """What a graph rounds factors to: "int8", "bfloat16" or nothing. A difference in the last digit becomes
    one of that size, whoever computes it."""
    found = ""
    for node in graph.nodes:
        name = node.target._schema.name if isinstance(node.target, torch._ops.OpOverload) else ""
        kind = _OWN.get(node.target, "") if node.op == "call_function" else ""
        if kind == "int8" or name == "aten::_int_mm":
            return "int8"
        if kind == "bfloat16" or (
            name in _PRODUCTS
            and any(
                isinstance(value := each.meta.get("val"), torch.Tensor) and value.dtype is torch.bfloat16
                for each in node.all_input_nodes
            )
        ):
            found = "bfloat16"
    return found
