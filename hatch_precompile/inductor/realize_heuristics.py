"""Values that take long to compute and are used more than once.

Inductor keeps such a value if one of the operations that it knows to be heavy is in it, and otherwise
computes it at each use. Its list has no erf, of which GELU is made: a layer that is quantized after it, first
for the largest number and then for rounding, would compute it twice.
Seen in torch 2.13.0 (torch/_inductor/ir.py: `StorageBox.should_realize_on_reuse`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

__all__ = ["heavy_values_kept"]

_HEAVY = {"erf", "erfc"}


def heavy_values_kept() -> AbstractContextManager[Any]:
    """Have what is lowered while the block runs compute a value of which erf is a part once."""
    from torch._inductor.ir import Pointwise, StorageBox, is_cpu

    before = StorageBox.should_realize_on_reuse

    def should_realize_on_reuse(self: Any, users: int, **kwargs: Any) -> bool:
        if before(self, users, **kwargs):
            return True
        if users < 2 or not isinstance(self.data, Pointwise) or not is_cpu(self.data):
            return False
        return not _HEAVY.isdisjoint(self.data.inner_fn_opcount().used_ops)

    return patch.object(StorageBox, "should_realize_on_reuse", should_realize_on_reuse)
