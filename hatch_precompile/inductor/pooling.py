"""Average pools whose window covers the whole image become means.

Inductor's code goes through all of a window, and asks at each place whether it is in the image. EfficientNet
of transformers averages 7 x 7 pixels by a window of 2,560 x 2,560: eighteen times as long as eager code.
Seen in torch 2.13.0 (`_avg_poolnd` in torch/_inductor/lowering.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["whole_windows_are_means"]

aten = torch.ops.aten


def whole_windows_are_means(graph: Any) -> None:
    """Replace them in a graph, where sizes tell that there is one window."""
    for node in graph.find_nodes(op="call_function", target=aten.avg_pool2d.default):
        given: list[Any] = list(node.args)
        x, kernel, _stride, padding, ceil_mode, _, divisor = given + _DEFAULTS[len(given) :]
        size = x.meta["val"].shape[-2:]
        if not ceil_mode or divisor is not None or {*padding} != {0} or node.kwargs:
            continue
        if all(statically_known_true(each <= most) for each, most in zip(size, _pair(kernel), strict=True)):
            with graph.inserting_before(node):
                mean = graph.call_function(aten.mean.dim, (x, [-2, -1], True))
            mean.meta.update(node.meta)
            node.replace_all_uses_with(mean)
            graph.erase_node(node)


# Of avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override).
_DEFAULTS: list[Any] = [None, None, [], [0], False, True, None]


def _pair(each: Any) -> list[Any]:
    return list(each) * (2 // len(each))
