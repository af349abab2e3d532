"""What the graph of a sample returns where there is no GPU: tensors that nobody can read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sympy
import torch

from hatch_precompile.backends.cuda import standin

__all__ = ["PlaceholderOutputs"]


class PlaceholderOutputs:
    """In the place of a library: outputs as it would return them, while the samples of an entrypoint go on.

    outputs, inputs: the values that stand for them in the graph; see Compiler.compiled. written: the numbers
    of inputs that the library writes to
    """

    def __init__(self, outputs: Sequence[Any], inputs: Sequence[Any], written: Collection[int] = ()) -> None:
        self._written = written
        places = {id(value): place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
        self._outputs = [(value, places.get(id(value))) for value in outputs]
        self._inputs = inputs

    def __call__(self, inputs: list[Any]) -> list[Any]:
        given = list(inputs)
        inputs.clear()
        for number in self._written:
            _forget(given[number])
        sizes = self._sizes(given)
        return [_made(value, sizes) if place is None else given[place] for value, place in self._outputs]

    def _sizes(self, given: Sequence[Any]) -> dict[Any, int]:
        """The symbols of the graph, and what each is at this call."""
        found: dict[Any, int] = {}
        for value, actual in zip(self._inputs, given, strict=True):
            pairs = [(value, actual)]
            if isinstance(value, torch.Tensor):
                pairs = [
                    *zip(value.shape, actual.shape, strict=True),
                    *zip(value.stride(), actual.stride(), strict=True),
                ]
            for symbolic, number in pairs:
                if isinstance(symbolic, torch.SymInt) and isinstance(symbolic.node.expr, sympy.Symbol):
                    found[symbolic.node.expr] = int(number)
        return found


def _made(value: Any, sizes: dict[Any, int]) -> Any:
    def number(symbolic: Any) -> int:
        return (
            int(symbolic.node.expr.xreplace(sizes)) if isinstance(symbolic, torch.SymInt) else int(symbolic)
        )

    if isinstance(value, torch.SymInt):
        return number(value)
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = map(number, value.shape), map(number, value.stride())
    return _forget(torch.empty_strided([*shape], [*strides], dtype=value.dtype, device=value.device))


def _forget(tensor: torch.Tensor) -> torch.Tensor:
    """Mark the memory of a tensor on a GPU as unknown: reading it is an error."""
    if tensor.is_cuda:
        memory = tensor.untyped_storage()
        standin.make_unknown(memory.data_ptr(), memory.nbytes())
    return tensor
