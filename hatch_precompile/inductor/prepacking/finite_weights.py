"""Weights that must be finite to be multiplied in another way than eager code does.

Convolutions that are packed leave out the zeros around a picture, which eager code may multiply with NaN, and
a norm is folded into their weights: an infinite factor of sums is not one of the products. The runtime looks
when it computes what depends on weights alone, and has the model's own code run where they are not.
"""

from __future__ import annotations

from typing import Any

from hatch_precompile.inductor.extern_kernels import lowers_itself
from hatch_precompile.inductor.prepacking.steps import own_step

__all__ = ["finite"]


def finite(weight: Any) -> Any:
    """A weight as it is. A target of nodes; where the graph makes the weight itself nobody looks."""
    return weight


lowers_itself(finite)
own_step(finite, "finite")
