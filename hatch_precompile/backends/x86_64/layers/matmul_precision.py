"""`float32-matmul-precision = "medium"`: float32 layers multiply in bfloat16, for variants whose CPU has it.

What torch.set_float32_matmul_precision does for a whole process, in one graph: the factors are rounded to
bfloat16, their products are summed in float32. The sum is rounded once more, because oneDNN gives back the
type of the factors; what follows a layer, and is not fused into it, is float32 again.
Seen in torch 2.13.0 (torch/_inductor/fx_passes/mkldnn_fusion.py, which knows these casts around what it
fuses).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["layers_in_bfloat16", "layer_in_bfloat16"]

aten, prims = torch.ops.aten, torch.ops.prims

# Uses of each number of a factor from which on rounding it first pays off.
_WORTH_ROUNDING = 64


def layers_in_bfloat16(graph: Any) -> None:
    """Have products of float32 matrices be made in bfloat16, where rounding both at each call is worth it."""
    for node in list(graph.nodes):
        if node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            *_, one, other = node.args
            factors = [each.meta["val"] for each in (one, other)]
            (m, k), (_, n) = factors[0].shape, factors[1].shape
            often = all(statically_known_true(size >= _WORTH_ROUNDING) for size in (m, k, n))
            if often and all(_is_float32(value) for value in factors):
                layer_in_bfloat16(graph, node, -2, -1, *((0,) if node.target is aten.addmm.default else ()))


def layer_in_bfloat16(graph: Any, layer: Any, *rounded: int) -> None:
    """Have a layer whose result is float32 be one of bfloat16. rounded: the places of the arguments that are
    float32 yet and must not be."""
    args = list(layer.args)
    for place in rounded:
        args[place] = _rounded(graph, args[place], layer)
    layer.args = tuple(args)
    with graph.inserting_after(layer):
        wide = graph.call_function(prims.convert_element_type.default, (layer, torch.float32))
    wide.meta.update(layer.meta)
    layer.meta["val"] = wide.meta["val"].to(torch.bfloat16)
    layer.replace_all_uses_with(wide, lambda user: user is not wide)


def _rounded(graph: Any, node: Any, layer: Any) -> Any:
    with graph.inserting_before(layer):
        half = graph.call_function(prims.convert_element_type.default, (node, torch.bfloat16))
    half.meta["val"] = node.meta["val"].to(torch.bfloat16)
    return half


def _is_float32(value: Any) -> bool:
    return value.dtype is torch.float32 and value.device.type == "cpu"
