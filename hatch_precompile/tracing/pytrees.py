"""Containers as torch's own pytrees know them, and what is inside tensors of other classes."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree

__all__ = ["children", "inner_tensors", "plain"]


def children(value: Any) -> list[tuple[str, Any]] | None:
    """What a container that is registered with torch holds, each with its key as Python would write it.

    None for anything else. Libraries register their own: transformers does so for what its models return.
    """

    def is_child(each: Any) -> bool:
        return each is not value

    if pytree.tree_structure(value, is_leaf=is_child).is_leaf():
        return None
    try:
        pairs, _ = pytree.tree_flatten_with_path(value, is_leaf=is_child)
    except ValueError:  # registered without names for what it holds
        return [(f"[{i}]", child) for i, child in enumerate(pytree.tree_flatten(value, is_leaf=is_child)[0])]
    return [(pytree.keystr(path), child) for path, child in pairs]


def inner_tensors(tensor: torch.Tensor) -> tuple[list[str], Any] | None:
    """The attributes of a tensor that wraps others which hold those, and what else it is made of.

    None for a tensor that wraps none.
    """
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    return None if flatten is None else flatten(tensor)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of a subclass, or a parameter, as torch.Tensor without its history."""
    with torch._C.DisableTorchFunctionSubclass():
        detached = tensor.detach()
        # Not of every layout can there be another view.
        return detached if type(detached) is torch.Tensor else detached.as_subclass(torch.Tensor)
