"""Steps of x86-64: weights as our own functions and oneDNN multiply them. See graphs/weights.py, and
hatch_precompile/backends/x86_64/layers/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...torch_internals.torch_private import filters_for_onednn, packed_for_onednn

__all__ = ["COLUMNS", "STEPS", "decide_otherwise"]

COLUMNS = 16
_otherwise = False


def decide_otherwise(otherwise: bool) -> None:
    """otherwise: from now on, `onednn_is_fast` answers the opposite. Verification runs both."""
    global _otherwise
    _otherwise = otherwise


def _in_panels(weight: torch.Tensor) -> torch.Tensor:
    """A layer's weight, (n, k), in the order in which our own function reads it: (panels, k, 16)."""
    n, k = weight.shape
    filled = torch.nn.functional.pad(weight, [0, 0, 0, -n % COLUMNS]) if n % COLUMNS else weight
    return filled.view(-1, COLUMNS, k).permute(0, 2, 1).contiguous()


def _packed_here(weight: torch.Tensor) -> torch.Tensor:
    """`_in_panels`, or prepacked for oneDNN where that is faster: for a library whose variant is without
    AVX-512, on a processor that may have it. Our function tells them apart by the dimensions."""
    return packed_for_onednn(weight) if onednn_is_fast() else _in_panels(weight)


def onednn_is_fast() -> bool:
    """Whether this processor has what oneDNN is faster with than our own function."""
    return bool(torch.cpu.get_capabilities().get("avx512_f")) != _otherwise


def _in_points(weight: torch.Tensor, *_: Any) -> torch.Tensor:
    """The filters of a convolution, (filters, channels, 3, 3), as Winograd's algorithm multiplies them:
    (4, 4, panels, channels, 16)."""
    channels = weight.shape[1]
    points = weight.reshape(-1, COLUMNS, channels, 3, 3).permute(3, 4, 0, 2, 1).contiguous()
    for dimension in (0, 1):
        first, middle, last = points.unbind(dimension)
        ends = first + last
        points = torch.stack([first, (ends + middle) / 2, (ends - middle) / 2, last], dimension)
    return points


def _points_here(weight: torch.Tensor, packed: Any) -> torch.Tensor:
    """`_in_points`, or prepacked for oneDNN as above, if `packed` has padding and sizes; or unchanged if a
    number is not finite: the algorithm would subtract infinity from itself."""
    if packed is not None and onednn_is_fast():
        return filters_for_onednn(weight, *packed)
    points = _in_points(weight)
    return points if points.sum().isfinite() else weight.contiguous()


STEPS: dict[str, Callable[..., torch.Tensor]] = {
    "in_panels": _in_panels,
    "in_points": _in_points,
    "packed_here": _packed_here,
    "points_here": _points_here,
}


WHOLE = True
