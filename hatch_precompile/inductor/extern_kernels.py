"""C++ functions of ours that are compiled into the library of a graph, and called there as torch's own are.

Seen in torch 2.13.0 (torch/_inductor/ir.py: `ExternKernelAlloc`) and 2.15.0 (torch/_inductor/fx_utils.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

__all__ = [
    "OTHERWISE",
    "call_laid_out",
    "call_of",
    "call_with_results",
    "calls_c_functions",
    "has_known_sizes",
    "is_number",
    "is_transposed",
    "lowered",
    "lowers_itself",
    "results_known",
]

OTHERWISE = """
#ifndef PRECOMPILED_OTHERWISE
#define PRECOMPILED_OTHERWISE
// While a build verifies (emulated_processors.py) what the processor decides is decided otherwise.
extern "C" {
__attribute__((weak, visibility("hidden"))) bool precompiled_otherwise = false;
__attribute__((weak, visibility("default"))) void precompiled_decide_otherwise(bool otherwise) {
    precompiled_otherwise = otherwise;
}
}
#endif
"""
"""The beginning of a source that asks the processor. One of each library, and not of the whole process."""


def call_of(
    source: str, name: str, given: Sequence[Any], constants: tuple[Any, ...], columns: Any, dtype: torch.dtype
) -> Any:
    """What a lowering returns for a call that gives a matrix.

    given: tensors, which the function gets contiguous, the first with as many rows as the result; columns,
    dtype: of the result. The rest is as for `call_laid_out`.
    """
    from torch._inductor import ir

    need = ir.ExternKernel.require_contiguous
    inputs = [need(ir.ExternKernel.realize_input(each)) for each in given]
    size = [given[0].get_size()[0], columns]
    layout = ir.FixedLayout(device=given[0].get_device(), dtype=dtype, size=size, stride=[columns, 1])
    return call_laid_out((source,), name, inputs, constants, layout)


def call_laid_out(
    sources: tuple[str, ...], name: str, inputs: Sequence[Any], constants: tuple[Any, ...], layout: Any
) -> Any:
    """What a lowering returns for a call of one of the functions in the last of `sources`.

    name: of the function, which takes the handles of the tensors, then the constants, and gives the handle of
    a new one; inputs: tensors that are there; layout: of the result.
    """
    from torch._inductor import ir

    return ir.TensorBox.create(_call(sources, layout, inputs, constants, name))


def call_with_results(
    sources: tuple[str, ...],
    name: str,
    inputs: Sequence[Any],
    constants: tuple[Any, ...],
    layouts: Sequence[Any],
) -> list[Any]:
    """The same for a function that gives several tensors, which have these layouts."""
    from torch._inductor import ir

    call = _call(sources, ir.MultiOutputLayout(device=layouts[0].device), inputs, constants, name)
    call.outputs = [ir.MultiOutput(layout, call, [(tuple, number)]) for number, layout in enumerate(layouts)]
    return [ir.TensorBox.create(each) for each in call.outputs]


def _call(
    sources: tuple[str, ...], layout: Any, inputs: Sequence[Any], constants: tuple[Any, ...], name: str
) -> Any:
    from torch._inductor import ir

    class Call(ir.ExternKernelAlloc):
        """Each source comes once into each library."""

        def codegen(self, wrapper: Any) -> None:
            for source in sources:
                if source not in wrapper.header.getvalue():
                    wrapper.header.splice(source)
            super().codegen(wrapper)

        def apply_constraint(self) -> None:
            pass

    return Call(layout, inputs, constants, cpp_kernel_name=name)


def lowers_itself(target: Callable[..., Any]) -> None:
    """Have inductor lower a node by calling its target."""
    target._inductor_lowering_function = True  # type: ignore[attr-defined]
    _LOWERING_THEMSELVES.add(target)


_LOWERING_THEMSELVES = set[Callable[..., Any]]()


def results_known() -> AbstractContextManager[Any]:
    """Where a pass of inductor's changes what such a node is given, have its result stay as it was noted.

    Otherwise such a node stops the build since torch 2.14, unless its target has a function that says what
    the result is. That one is given the arguments alone, of which weights are packed: so each node has a
    target of its own while it is asked.
    """
    from torch._inductor.fx_utils import FakeTensorUpdater

    own = FakeTensorUpdater.incremental_update

    def update(updater: Any) -> Any:
        graph = updater.gm.graph if hasattr(updater, "gm") else updater.graph
        changed = [
            (node, node.target)
            for node in graph.nodes
            if node.op == "call_function" and node.target in _LOWERING_THEMSELVES and "val" in node.meta
        ]
        for node, target in changed:
            node.target = _with_result(target, node.meta["val"])
        try:
            return own(updater)
        finally:
            for node, target in changed:
                node.target = target

    return patch.object(FakeTensorUpdater, "incremental_update", update)


def _with_result(target: Callable[..., Any], result: Any) -> Callable[..., Any]:
    def standing_in(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    standing_in._inductor_lowering_function = True  # type: ignore[attr-defined]
    standing_in._inductor_lowering_output_metadata_fn = lambda *_, **__: result  # type: ignore[attr-defined]
    return standing_in


def calls_c_functions() -> bool:
    """Whether the graph gets inductor's C++ wrapper. The Python one, which few get, calls operators."""
    from torch._inductor.virtualized import V

    return bool(V.graph.cpp_wrapper)


def lowered(operator: Any, *args: Any, overload: str = "default") -> Any:
    """What inductor makes of an operator of torch's."""
    from torch._inductor.lowering import lowerings

    return lowerings[getattr(operator, overload)](*args)


def has_known_sizes(w: Any) -> bool:
    """Whether a matrix has sizes that are numbers, and something in it."""
    sizes = w.get_size()
    return all(map(is_number, sizes)) and min(sizes) >= 1


def is_number(size: Any) -> bool:
    return isinstance(size, int) or bool(size.is_number)


def is_transposed(w: Any) -> bool:
    """Whether (k, n) is the transpose of what lies in memory, as that of a layer's weight is."""
    from torch._inductor import ir

    if not ir.is_storage_and_layout(w):
        return False
    _, layout = ir.as_storage_and_layout(w, freeze=False)
    return isinstance(layout, ir.FixedLayout) and list(layout.stride) == [1, int(w.get_size()[0])]
