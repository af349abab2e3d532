"""Weights that must be finite to be multiplied in another way than eager code does.

Packed convolutions leave out the zeros around a picture, which eager code may multiply with NaN. A folded
norm multiplies the weights in place of the sums, which differs for an infinite factor. The runtime checks
them when it computes what depends on weights alone, and runs the model's own code where they are not finite.
"""

from __future__ import annotations

from typing import Any

from hatch_precompile.inductor.extern_kernels import lowers_itself
from hatch_precompile.inductor.prepacking.steps import own_step

__all__ = ["finite"]


def finite(weight: Any) -> Any:
    """Gives the weight back. A target of nodes; where the graph makes the weight itself nobody checks it."""
    return weight


lowers_itself(finite)
own_step(finite, "finite")
