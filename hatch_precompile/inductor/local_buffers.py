"""Loops that share a buffer of one row: torch fuses them also where each step computes several rows.

Of two loops over the same rows, where the first computes what the second reads, inductor makes one, with a
buffer for one row in the place of a tensor. Where the rows themselves are taken several at a time, because
something lies transposed in memory, all of them are written to that one row. Seen in torch 2.11.0 and 2.13.0,
whose `torch.compile` gives wrong answers there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

__all__ = ["local_buffers_of_single_rows"]


def local_buffers_of_single_rows() -> AbstractContextManager[Any]:
    """While the block compiles, loops that take several rows at a time are not fused around a buffer."""
    from torch._inductor.codegen.cpp import OuterLoopFusedSchedulerNode
    from torch._inductor.codegen.cpp_utils import LocalBufferContext
    from torch._inductor.virtualized import V

    name = "check_outer_fusion_loop_level_attr"
    check = getattr(OuterLoopFusedSchedulerNode, name)

    def check_rows(self: Any, kernels: Any, depth: int) -> bool:
        context = V.local_buffer_context
        if isinstance(context, LocalBufferContext) and context.local_buffers:
            rows = (loop for kernel in kernels for loop in kernel.loop_nest.loops[:depth])
            if any(loop.steps != 1 for loop in rows):
                return False
        return bool(check(self, kernels, depth))

    return patch.object(OuterLoopFusedSchedulerNode, name, check_rows)
