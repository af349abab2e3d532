"""What a call did, as plain data that goes from one process to another: results, inputs, errors, effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

__all__ = ["Raised", "Shown", "Tensor", "described", "sharing", "tensors_of"]

DEPTH = 6


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor's facts and its content. `data`: its elements in their order; None where it has none."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    flags: tuple[str, ...]
    data: bytes | None


@dataclasses.dataclass(frozen=True)
class Raised:
    """An exception: its type and its text."""

    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Shown:
    """An object of some other type, by its type and what it consists of."""

    kind: str
    content: Any


def described(value: Any, depth: int = 0) -> Any:
    """The value as plain data: numbers, strings and containers as they are, all else as one of the above."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, BaseException):
        return Raised(_name(type(value)), str(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value if type(value).__module__ == "builtins" else Shown(_name(type(value)), repr(value))
    if depth > DEPTH:
        return Shown(_name(type(value)), "...")
    if isinstance(value, Mapping):
        items = [(described(key, depth + 1), described(item, depth + 1)) for key, item in value.items()]
        return Shown(_name(type(value)), items)
    if isinstance(value, (list, tuple, set, frozenset)):
        kept = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return Shown(_name(type(value)), [described(item, depth + 1) for item in kept])
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        # A subclass is itself, and so is one that cannot be written to.
        facts = (str(value.dtype), value.shape, bool(value.flags.writeable))
        return Shown(_name(type(value)), [facts, described(value.tolist(), depth + 1)])
    if isinstance(value, (type, FunctionType, MethodType, BuiltinFunctionType)):
        return Shown("named", _name(value))
    if isinstance(value, (Enum, torch.dtype, torch.device, torch.Size)):
        return Shown(_name(type(value)), str(value))
    if isinstance(value, torch.nn.Module):
        return Shown(_name(type(value)), described(dict(value.state_dict()), depth + 1))
    if hasattr(value, "__dict__"):
        return Shown(_name(type(value)), described(dict(vars(value)), depth + 1))
    return Shown(_name(type(value)), "")


def tensors_of(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """Every tensor in it, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)) and depth <= DEPTH:
        return [tensor for item in value for tensor in tensors_of(item, depth + 1)]
    return []


def sharing(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor the first that is the same object, and the first in the same memory."""
    places = [_place(tensor, number) for number, tensor in enumerate(tensors)]
    return [
        (next(i for i, other in enumerate(tensors) if other is tensor), places.index(place))
        for tensor, place in zip(tensors, places, strict=True)
    ]


def _place(tensor: torch.Tensor, number: int) -> tuple[str, int]:
    try:
        return "at", tensor.untyped_storage().data_ptr() or -number - 1
    except Exception:  # a tensor without memory of its own is alone in it
        return "number", number


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"


def _tensor(value: torch.Tensor) -> Tensor:
    flags = [name for name in ("requires_grad", "is_leaf") if getattr(value, name)]
    flags += [name for name in ("is_inference", "is_conj", "is_neg") if getattr(value, name)()]
    shape = tuple(int(size) for size in value.shape)
    strides: tuple[int, ...] = ()
    if value.layout is torch.strided:
        # The stride of a dimension of one element is nobody's business.
        steps = zip(value.shape, value.stride(), strict=True)
        strides = tuple(int(stride) if size > 1 else 0 for size, stride in steps) if value.numel() else ()
    return Tensor(_name(type(value)), str(value.dtype), shape, strides, tuple(flags), _data(value))


def _data(value: torch.Tensor) -> bytes | None:
    if value.device.type == "meta":
        return None
    plain = value.detach()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    flat = plain.resolve_conj().resolve_neg().contiguous().reshape(-1).clone()
    return bytes(flat.view(torch.uint8).numpy())
