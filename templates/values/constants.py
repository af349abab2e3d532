"""Values that guards and bytecode compare with, from the plain data that stands for them in a bundle.

A constant is a value that marshal can hold, or a tagged list (see `decode`) for one it cannot.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from ..errors import check_parts
from .references import Stale, check, resolve

__all__ = ["alike", "decode"]


def decode(constant: Any) -> Any:
    """The value of a constant as the plugin encoded it.

    Plain values stand for themselves. A list is a tag and its parts: "ref" (module, steps,
    fingerprint), "builtins", "globals" (module), "tuple", "list", "set", "frozenset", "dict",
    "slice", "range", "size", "device", "dataclass" (class, fields), "parametrized", "if-imported" (module,
    parts).
    """
    if type(constant) is not list:
        return constant
    tag, *parts = constant
    make = _DECODERS.get(tag) if type(tag) is str else None
    if make is None:
        raise Stale(f"unknown constant {tag!r}")
    return make(*parts)


def _parametrized(part: Any) -> Any:
    from .parametrized import ParametrizedClass

    check_parts()
    return ParametrizedClass(decode(part))


def _dataclass(cls: Any, *fields: Any) -> Any:
    """One with these fields, whatever its class does when one is made."""
    made = object.__new__(decode(cls))
    for name, value in fields:
        object.__setattr__(made, name, decode(value))
    return made


def _device(kind: str, *index: int) -> Any:
    return sys.modules["torch"].device(kind, *index)


def _if_imported(*parts: Any) -> Any:
    from .if_imported import IfImported

    check_parts()
    return IfImported(*parts)


_DECODERS: dict[str, Callable[..., Any]] = {
    "ref": check,
    "builtins": lambda: sys.modules["builtins"].__dict__,
    "globals": lambda module: resolve(module, ()).__dict__,
    "tuple": lambda *parts: tuple(map(decode, parts)),
    "list": lambda *parts: list(map(decode, parts)),
    "set": lambda *parts: set(map(decode, parts)),
    "frozenset": lambda *parts: frozenset(map(decode, parts)),
    "dict": lambda *pairs: {decode(key): decode(value) for key, value in pairs},
    "slice": lambda *parts: slice(*map(decode, parts)),
    "range": range,
    "size": lambda *sizes: sys.modules["torch"].Size(sizes),
    "device": _device,
    "dataclass": _dataclass,
    "parametrized": _parametrized,
    "if-imported": _if_imported,
}


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same types, and so is all that they hold.

    Unlike `==`: 1, 1.0 and True are not alike, nor are 0.0 and -0.0; two nans are. The order of dicts counts.
    guards.h has the same in C.
    """
    cls = type(one)
    if cls is not type(other):
        return False
    if cls is float:
        same = one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
        return same or (one != one and other != other)
    if cls is complex:
        return alike((one.real, one.imag), (other.real, other.imag))
    if issubclass(cls, (tuple, list)):
        return len(one) == len(other) and all(map(alike, one, other))
    if issubclass(cls, dict):
        return alike(list(one.items()), list(other.items()))
    if issubclass(cls, (set, frozenset)):
        return len(one) == len(other) and all(any(alike(mine, item) for item in other) for mine in one)
    if cls in (slice, range):
        return alike((one.start, one.stop, one.step), (other.start, other.stop, other.step))
    fields = getattr(cls, "__dataclass_fields__", {})
    compared = [name for name, field in fields.items() if field.compare]
    if not all(alike(getattr(one, name, None), getattr(other, name, None)) for name in compared):
        return False
    return bool(one == other)


WHOLE = True
