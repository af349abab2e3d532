"""What the plugin asks of tensors and operators that torch has no public name for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import torch
from torch.utils._sympy.numbers import int_oo

__all__ = [
    "dispatch_key_set",
    "like_stretched",
    "mark_range",
    "mark_static",
    "shapes_kernel",
    "version_of",
    "without_subclass",
]

_Steps = tuple[tuple[str, str], ...]


def mark_range(tensor: torch.Tensor, index: int, low: int | None, high: int | None) -> None:
    """Have dynamo trace a dimension for any size, from low to high where either is given."""
    if low is not None or high is not None:
        # Dynamo wants both ends of a range or none.
        low, high = (2 if low is None else low), (int_oo if high is None else high)
    torch._dynamo.mark_dynamic(tensor, index, min=low, max=high)


def mark_static(tensor: torch.Tensor, index: int) -> None:
    """Have dynamo trace a dimension for just the size it has."""
    torch._dynamo.mark_static(tensor, index)


def like_stretched(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """A tensor with other sizes in some dimensions, in the same order in memory; its values are repeated, or
    cut off. One without any is filled with zeros."""
    value = tensor
    for index, size in sizes.items():
        if value.size(index):
            value = value.index_select(index, torch.arange(size, device=value.device) % value.size(index))
        else:
            value = value.new_zeros([size if dim == index else n for dim, n in enumerate(value.shape)])
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    places = sorted(range(tensor.dim()), key=order.__getitem__)
    return value.permute(order).contiguous().permute(places)


def without_subclass() -> AbstractContextManager[Any]:
    """Within it `__torch_function__` of tensor subclasses is not called."""
    context: AbstractContextManager[Any] = torch._C.DisableTorchFunctionSubclass()
    return context


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; 0 for one made in inference mode, of which torch does not know."""
    return 0 if tensor.is_inference() else int(tensor._version)


def dispatch_key_set(arguments: Iterable[Any]) -> int:
    """The dispatch keys among the arguments of a tensor guard, as a number."""
    keys = next(each for each in arguments if isinstance(each, torch._C.DispatchKeySet))
    return int(keys.raw_repr())


def shapes_kernel(code: CodeType) -> tuple[str, _Steps] | None:
    """The module and the way to a custom operator's function for shapes, which torch keeps by the operator.

    It is often called `_`, so that its own name does not lead to it.
    """
    from torch._library.simple_registry import singleton

    for name, entry in singleton._data.items():
        kernel = entry.fake_impl.kernel
        if kernel is not None and getattr(kernel.func, "__code__", None) is code:
            steps = [("a", "singleton"), ("a", "_data"), ("i", name), ("a", "fake_impl"), ("a", "kernel")]
            return "torch._library.simple_registry", (*steps, ("a", "func"))
    return None
