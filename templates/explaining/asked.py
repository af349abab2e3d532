"""What an entry was built without, in words: names, keys, other objects, memory of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .refusal import Check, Stop

__all__ = ["ABSENCES"]


def _lacks(check: Check, stop: Stop, constants: Mapping[str, Any]) -> str:
    (name,) = check.places
    if name in stop.values:
        there, owner = _there(stop.values[name], check, stop), stop.attributes_of(name)
        if owner:
            return f"built without an attribute {there} of {owner}, which has one now"
        return f"built without a key {there} in {stop.path(name)}, which has it now"
    there = _there(constants.get(name, {}), check, stop)
    module = constants.get(name, {}).get("__name__", "the module")
    return f"built without a global {there} in {module}, which has one now"


def _class_lacks(check: Check, stop: Stop, constants: Mapping[str, Any]) -> str:
    cls, (count, names) = constants[check.places[0]], check.expected
    have = {key for base in cls.__mro__[:count] for key in base.__dict__}
    there = " or ".join(repr(name) for name in names if name in have)
    return f"built without {there} in the class {cls.__qualname__}, which has it now"


def _class_has(check: Check, stop: Stop, constants: Mapping[str, Any]) -> str:
    cls, special = (constants[name] for name in check.places)
    other = sorted((special & cls.__dict__.keys()).symmetric_difference(check.expected))
    return f"the class {cls.__qualname__} has got or lost {', '.join(other)} since the build"


def _one_object(check: Check, stop: Stop, constants: Mapping[str, Any]) -> str:
    one, other = map(stop.path, check.places)
    return f"{one} and {other} are one object; the entry was built with two"


def _shared_memory(check: Check, stop: Stop, constants: Mapping[str, Any]) -> str:
    names = ", ".join(map(stop.path, check.places))
    return f"of {names} two lie in the same memory, and the call writes to one of them"


ABSENCES = {
    "ABSENT_GLOBAL": _lacks,
    "DICT_LACKS": _lacks,
    "ABSENT_IN_CLASS": _class_lacks,
    "SPECIAL_METHODS": _class_has,
    "IDENTITY": _one_object,
    "MEMORY": _shared_memory,
}
"""The words for a kind of check, of what was asked, where it was refused, and the constants by name."""


def _there(found: Any, check: Check, stop: Stop) -> str:
    """Which of the keys are there; all, where they are objects."""
    if check.expected is None:
        return stop.spelled(check.needed)
    return " or ".join(repr(key) for key in check.expected if key in found)


WHOLE = True
