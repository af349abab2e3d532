"""How a tensor lies in memory and which of its sizes vary, read from expressions without a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hatch_precompile.torch_versions import torch_name

__all__ = ["are_in_order", "expression", "is_backed", "lies", "of_sample", "varies"]


def varies(tensor: Any) -> bool:
    return any(isinstance(size, torch.SymInt) for size in tensor.shape)


def lies(tensor: Any, order: Sequence[int]) -> bool:
    """Whether a tensor is in one piece for all its sizes, its dimensions in this order, outermost first."""
    return are_in_order(tensor.shape, tensor.stride(), order)


def are_in_order(sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> bool:
    """Whether the strides are the products of the sizes in an order of the dimensions, as expressions."""
    exact: Any = 1
    at_least_one: Any = 1  # as torch writes it where a size may be 0
    for dimension in reversed(order):
        size, stride = sizes[dimension], expression(strides[dimension])
        if isinstance(size, int) and size == 1:
            continue
        if stride != expression(exact) and stride != expression(at_least_one):
            return False
        exact, at_least_one = exact * size, at_least_one * torch.sym_max(size, 1)
    return True


def expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else number


def of_sample(size: Any) -> int:
    """The value that a size has where it is traced, or 0 where nothing tells."""
    return size if isinstance(size, int) else size.node.hint or 0


def is_backed(size: Any) -> bool:
    return bool(torch_name("whether a size has such a value")(size))
