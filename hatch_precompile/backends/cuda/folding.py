"""Constants that inductor finds by computing them: on the CPU. Seen in torch 2.11.0 and 2.13.0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["constants_folded_on_the_cpu"]


@contextlib.contextmanager
def constants_folded_on_the_cpu() -> Iterator[None]:
    """Inductor fills a tensor of one element on the device to find out what a graph has of one value only."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    deduce = UniformValueConstantFolder._deduce_value
    full = torch.ops.aten.full.default
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)

    def deduce_on_the_cpu(self: Any, node: Any) -> Any:
        if node.op == "call_function" and node.target is full and len(node.args) == 2:
            (_, value), settings = self.fetch_args_kwargs_from_env(node)
            if not isinstance(value, symbolic):
                return full([1], value, **{**settings, "device": torch.device("cpu")})
        found = deduce(self, node)
        return found.cpu() if isinstance(found, torch.Tensor) and found.is_cuda else found

    UniformValueConstantFolder._deduce_value = deduce_on_the_cpu
    try:
        yield
    finally:
        UniformValueConstantFolder._deduce_value = deduce
