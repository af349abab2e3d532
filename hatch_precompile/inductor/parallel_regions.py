"""Where a kernel starts threads: decided for the machine that it runs on, as torch.compile decides it there.

For an unknown number of threads inductor puts every kernel into a parallel region, however small. Starting
one costs microseconds, and in the child of a fork it never returns, because OpenMP's threads are not there.
With a number, inductor leaves out the region where a thread would get less than `cpp.min_chunk_size`
iterations. The same rule goes into the source: as a clause of the region, or as no region at all where it
could not hold for two threads. Seen in torch 2.13.0 to 2.15.0 (torch/_inductor/codegen/cpp.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

__all__ = ["regions_for_any_threads"]


@contextlib.contextmanager
def regions_for_any_threads() -> Iterator[None]:
    """Have the kernels that are written while the block runs ask for their threads by this rule."""
    from torch._inductor.codegen import cpp

    kernel = cpp.CppKernel
    decide, write = kernel.decide_parallel_depth, kernel.codegen_loops_impl

    def decide_for_any(self: Any, max_parallel_depth: Any, threads: int) -> Any:
        if _never_shared(_iterations(self)):
            return cpp.ParallelDepth(parallel_depth=0, start_depth=max_parallel_depth.start_depth)
        return decide(self, max_parallel_depth, threads)

    def write_with_a_condition(self: Any, loop_nest: Any, code: Any, worksharing: Any) -> None:
        condition = _condition(self, loop_nest)
        if worksharing.in_parallel and worksharing.condition != condition:
            worksharing.close()
        worksharing.condition = condition
        write(self, loop_nest, code, worksharing)

    def begin_region(self: Any, threads: int) -> None:
        if not self.in_parallel:
            self.num_threads, self.in_parallel = threads, True
            self.code.writeline(f"#pragma omp parallel if({self.condition})")
            self.stack.enter_context(self.code.indent())
            self.code.writeline("int tid = omp_get_thread_num();")

    with (
        patch.object(kernel, "decide_parallel_depth", decide_for_any),
        patch.object(kernel, "codegen_loops_impl", write_with_a_condition),
        patch.object(cpp.WorkSharing, "parallel", begin_region),
    ):
        yield


def _iterations(kernel: Any) -> Any:
    from torch._inductor.utils import sympy_product

    return sympy_product(kernel.call_ranges)


def _never_shared(iterations: Any) -> bool:
    from torch._inductor import config

    return iterations.is_number and int(iterations) // 2 < config.cpp.min_chunk_size


def _condition(kernel: Any, loop_nest: Any) -> str:
    """Of a kernel's region, in C++; empty for a kernel that has none."""
    from torch._inductor import config
    from torch._inductor.codegen import cpp
    from torch._inductor.virtualized import V

    parts = [kernel]
    if isinstance(loop_nest.kernel, cpp.OuterLoopFusedKernel):
        parts = [part.get_kernel() for part in loop_nest.kernel.inner]
    iterations = max(
        map(_iterations, parts), key=lambda each: V.graph.sizevars.optimization_hint(each, fallback=8192)
    )
    if _never_shared(iterations):
        return ""
    count = cpp.cexpr(kernel.rename_indexing(iterations))
    return f"{count} / omp_get_max_threads() >= {config.cpp.min_chunk_size}"
