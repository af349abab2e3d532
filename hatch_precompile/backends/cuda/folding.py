"""Constants that inductor finds by computing them: on the CPU. Seen in torch 2.11.0 and 2.13.0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = ["constants_folded_on_the_cpu"]


class _OnTheCpu(TorchDispatchMode):
    """Operators that name a device make their results on the CPU."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs or {}))
        return function(*args, **kwargs)


@contextlib.contextmanager
def constants_folded_on_the_cpu() -> Iterator[None]:
    """Have inductor find uniform values on the CPU: it computes them with tensors of one element, which would
    be on the device."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    deduce = UniformValueConstantFolder._deduce_value
    add_known = UniformValueConstantFolder._add_peephole_patterns

    def deduce_on_the_cpu(self: Any, node: Any) -> Any:
        with _OnTheCpu():
            found = deduce(self, node)
        return found.cpu() if isinstance(found, torch.Tensor) and found.is_cuda else found

    def add_on_the_cpu(self: Any) -> None:
        with _OnTheCpu():
            add_known(self)

    UniformValueConstantFolder._deduce_value = deduce_on_the_cpu
    UniformValueConstantFolder._add_peephole_patterns = add_on_the_cpu
    try:
        yield
    finally:
        UniformValueConstantFolder._deduce_value = deduce
        UniformValueConstantFolder._add_peephole_patterns = add_known
