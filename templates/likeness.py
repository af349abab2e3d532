"""Classes that every process makes for itself, known by what they were made of.

`torch.nn.utils.parametrize` (weight norm, spectral norm, orthogonal) gives each module that it changes a
class of its own: the module's class with a property for each parametrized tensor. It has no name.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any

__all__ = ["REMEMBERED", "Likeness"]

# What `copy.deepcopy` remembers on a class says nothing about it.
REMEMBERED = "__slotnames__"


class Likeness:
    """Answers whether a class is made of the same parts as the one at the build.

    recipe: (name, bases, {attribute: part}). A part is ("value", plain), ("function", code, cells, defaults,
    keyword defaults), ("property", getter, setter, deleter) or ("instance",): an object of the class itself.
    Bases and code objects are compared by identity.
    """

    def __init__(self, recipe: tuple[Any, ...]) -> None:
        self._recipe = recipe
        # A class is looked at once, and is known by its identity from then on, as it is to dynamo.
        self._known: weakref.WeakSet[type] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<a class made as {self._recipe[0]} was>"

    def fits(self, cls: type) -> bool:
        """Whether `cls` is made of the same parts."""
        if type(cls) is not type:
            return False
        if cls in self._known:
            return True
        name, bases, parts = self._recipe
        if cls.__name__ != name or cls.__bases__ != bases:
            return False
        found = {key: value for key, value in vars(cls).items() if key != REMEMBERED}
        if found.keys() != parts.keys() or not all(_alike(found[key], parts[key], cls) for key in parts):
            return False
        self._known.add(cls)
        return True


def _alike(value: Any, part: tuple[Any, ...], cls: type) -> bool:
    kind, *details = part
    if kind == "value":
        return type(value) is type(details[0]) and bool(value == details[0])
    if kind == "instance":
        return type(value) is cls
    if kind == "property":
        own = (value.fget, value.fset, value.fdel) if type(value) is property else ()
        return len(own) == 3 and all(map(_alike, own, details, (cls,) * 3))
    code, cells, defaults, keyword_defaults = details
    if type(value) is not FunctionType or value.__code__ is not code:
        return False
    if value.__defaults__ != defaults or value.__kwdefaults__ != keyword_defaults:
        return False
    # Of one code object: as many cells as it has free variables.
    return all(
        _alike(cell.cell_contents, content, cls)
        for cell, content in zip(value.__closure__ or (), cells, strict=True)
    )
