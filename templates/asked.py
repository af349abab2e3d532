"""What an entry was built without, in words: names, keys, other objects, memory of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

__all__ = ["words_of_absence"]

_LACKS = re.compile(r"dict\.keys\((?P<dict>\w+)\)\.isdisjoint\((?P<keys>\(.*\))\)")
_CLASS_LACKS = re.compile(r"class_lacks\((?P<cls>\w+), (?P<count>\d+), (?P<names>\(.*\))\)")
_CLASS_HAS = re.compile(r"class_has\((?P<cls>\w+), (?P<special>\w+), (?P<names>\(.*\))\)")
_APART = re.compile(r"(?P<one>v\d+) is not (?P<other>v\d+)")


def words_of_absence(
    check: str, path: Callable[[str], str], values: dict[str, Any], constants: dict[str, Any]
) -> str:
    """The reason for a refusal; "" for a check of another kind.

    check: a line of a guard function; path: the way to what is in a variable; values: of the variables
    constants: by name, `G` among them
    """
    if found := _LACKS.fullmatch(check):
        name = found["dict"]
        there = _there(values.get(name, constants.get(name, {})), found["keys"])
        if name not in values:
            module = constants.get(name, {}).get("__name__", "the module")
            return f"built without a global {there} in {module}, which has one now"
        owner = path(name)
        if owner.endswith(".__dict__"):
            return (
                f"built without an attribute {there} of {owner.removesuffix('.__dict__')}, which has one now"
            )
        return f"built without a key {there} in {owner}, which has it now"
    if found := _CLASS_LACKS.fullmatch(check):
        cls = constants[found["cls"]]
        bases = cls.__mro__[: int(found["count"])]
        have = {key: None for base in bases for key in base.__dict__}
        return (
            f"built without {_there(have, found['names'])} in the class {cls.__qualname__}, which has it now"
        )
    if found := _CLASS_HAS.fullmatch(check):
        cls = constants[found["cls"]]
        have = constants[found["special"]] & cls.__dict__.keys()
        other = sorted(have.symmetric_difference(ast.literal_eval(found["names"])))
        return f"the class {cls.__qualname__} has got or lost {', '.join(other)} since the build"
    if found := _APART.fullmatch(check):
        return f"{path(found['one'])} and {path(found['other'])} are one object; the entry was built with two"
    if check.startswith("apart_in_memory("):
        names = dict.fromkeys(map(path, re.findall(r"v\d+", check)))
        return f"of {', '.join(names)} two lie in the same memory, and the call writes to one of them"
    return ""


def _there(found: dict[str, Any], keys: str) -> str:
    """Which of the keys are there; all, where they are no literals."""
    try:
        wanted = ast.literal_eval(keys)
    except ValueError:
        return keys
    return " or ".join(repr(key) for key in wanted if key in found) or keys


WHOLE = True
