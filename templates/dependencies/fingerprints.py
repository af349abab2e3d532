"""What of functions, classes, values and files must be the same where a wheel runs: as plain data.

A fingerprint is the same in every process. That of a value is its text, or nested tuples, or else its class.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import hashlib
import os
import re
from collections.abc import Callable, Container
from types import FunctionType
from typing import Any

from ..errors import raised_by_signal
from ..values.references import fingerprint, is_torchs, unwrap
from ..values.static_lookup import (
    attribute,
    dict_of,
    has,
    is_a,
    is_exactly,
    module_of,
    mro_of,
    qualname_of,
)

__all__ = [
    "class_name",
    "is_changeable",
    "of_attribute",
    "of_class",
    "of_file",
    "of_function",
    "of_table_entry",
    "of_value",
    "type_name",
    "virtual_subclasses",
]

# Set by this runtime and by torch.compile itself, or never looked up by name.
_UNSEEN = {
    *("_compiled_call_impl", "__dict__", "__weakref__", "__module__", "__abstractmethods__", "_abc_impl"),
    *("__firstlineno__", "__static_attributes__"),
}
# By torch.compile, for good, when a process first compiles: a trace has it off, whatever eager code has.
_SWITCHED_OFF = ("torch.distributions.distribution.Distribution", "_validate_args")
# Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE: other classes than the first cannot be changed, nor can
# the second, as those of Cython's functions.
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8
_DEEP = 4
_ADDED = b"# added by hatch-precompile"


def of_function(function: Any, names: Container[str], held: bool) -> str:
    """What of a function's code, defaults and closure must not change.

    names: the free variables that count; held: with what is in dicts and lists
    """
    text: str = fingerprint(function)
    if names and type(function) is FunctionType and function.__closure__:
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        return f"{text} {[_cell(cell, held) for name, cell in cells if name in names]!r}"
    return text


def _cell(cell: Any, held: bool) -> Any:
    try:
        return of_value(cell.cell_contents, held)
    except ValueError:
        return "empty"


def is_changeable(cls: type) -> bool:
    """Whether a class can be changed at all: not so those that are built into Python."""
    return cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE) == _HEAP_TYPE


def type_name(cls: type) -> str:
    """A class in words; the same in every process."""
    return f"{module_of(cls)}.{qualname_of(cls)}"


def class_name(cls: type) -> str:
    """`type_name`, and that of the metaclass if it is not `type`."""
    return type_name(cls) if type(cls) is type else f"{type_name(cls)} ({type_name(type(cls))})"


def of_class(cls: type, names: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Those of `names` that a class itself defines, each with the fingerprint of what it has there."""
    own = dict_of(cls)
    held = is_a(cls, enum.EnumMeta)
    found = ((name, own[name]) for name in sorted(filter(names.__contains__, own)) if name not in _UNSEEN)
    if module_of(cls).partition(".")[0] == "torch":
        # Dynamo knows what many of these do, such as Module.__getattr__, and does not trace them. It puts
        # wrappers around some of torch.nn.Module's, when it is imported.
        return tuple(
            (name, fingerprint(unwrap(value)) if type(value) is FunctionType else of_value(value, held))
            for name, value in found
            if (type_name(cls), name) != _SWITCHED_OFF
        )
    return tuple((name, of_value(value, held)) for name, value in found)


def of_value(value: Any, held: bool = False, depth: int = _DEEP) -> Any:
    """A value as plain data that is the same in every process, as far as it has such.

    Of functions only that they are one: their code has a record of its own if it was traced. With `held`,
    what is in dicts and lists counts too.
    """
    if value is None or is_exactly(value, bool, int, float, complex, bytes):
        return repr(value)
    if type(value) is str:
        return "a path" if os.path.isabs(value) else repr(value)
    if is_a(value, enum.Enum, re.Pattern):
        return fingerprint(value)
    if is_a(value, type):
        return type_name(value)
    if type(value) is dataclasses.Field:
        return (
            "field",
            value.name,
            of_value(value.default, held, depth - 1),
            of_value(value.default_factory),
        )
    if depth and (held or is_a(value, tuple, frozenset)):
        inner = _held(value, held, depth - 1)
        if inner is not None:
            return (type_name(type(value)), *inner)
    if depth and attribute(type(value), "__dataclass_fields__") is not None:
        own = {field.name: attribute(value, field.name) for field in dataclasses.fields(type(value))}
        if not all(has(value, name) for name in own):
            own |= dict_of(value)  # one that is a property, which is not asked, may be made of these
        return (type_name(type(value)), *((name, of_value(own[name], held, depth - 1)) for name in own))
    if depth and is_a(value, functools.partial):
        parts = tuple(attribute(value, name) for name in ("func", "args"))
        parts = (*parts, tuple((attribute(value, "keywords") or {}).items()))
        return ("partial", *(of_value(part, held, depth - 1) for part in parts))
    return str(value) if is_torchs(value) else type_name(type(value))


def _held(value: Any, held: bool, depth: int) -> list[Any] | None:
    """What a container holds, read by Python's own class even where its class is derived; None for others."""
    for kind in (tuple, list, set, frozenset):
        if is_a(value, kind):
            found = [of_value(item, held, depth) for item in kind.__iter__(value)]
            return sorted(found, key=repr) if kind in (set, frozenset) else found
    if is_a(value, dict):
        return [(of_value(key), of_value(item, held, depth)) for key, item in dict.items(value)]
    return None


def virtual_subclasses(classes: dict[int, type]) -> tuple[tuple[int, int], ...]:
    """The numbers (class, abstract class) of each pair where the class is a virtual subclass of the other."""
    abstract = [(number, cls) for number, cls in classes.items() if is_a(cls, abc.ABCMeta)]
    may_be = {number: _may_be_registered(base) for number, base in abstract}
    derived_from = {number: set(map(id, mro_of(cls))) for number, cls in classes.items()}
    return tuple(
        (one, other)
        for one, cls in classes.items()
        for other, base in abstract
        if id(base) not in derived_from[one] and may_be[other](cls) and _is_subclass(cls, base)
    )


def _may_be_registered(base: Any) -> Callable[[type], bool]:
    """A function of `cls`: whether `issubclass(cls, base)` may be true by registration or by a hook.

    issubclass asks each class below `base` (Iterable has a hundred), for each `cls` anew. What could say yes
    is gathered once here. `abc._get_dump`: CPython 3.7 to 3.14.
    """
    dump = getattr(abc, "_get_dump", None)
    below: list[Any] = [base]
    registered: dict[int, Any] = {}  # by id: a class may have a hash of its own
    hooks: list[Any] = []
    for cls in below:
        hook = getattr(cls.__subclasshook__, "__func__", None)
        # The hooks of collections.abc answer for the class they are in alone.
        known = hook is None or hook.__module__ == "collections.abc"
        asks: Any = type(cls).__subclasscheck__
        if not known or dump is None or asks is not abc.ABCMeta.__subclasscheck__:
            return lambda cls: True
        if "__subclasshook__" in dict_of(cls):
            hooks.append(cls.__subclasshook__)
        found = (reference() for reference in dump(cls)[0])
        registered.update((id(each), each) for each in found if each is not None)  # not one that is gone
        below += type.__subclasses__(cls)
    plain = {number for number, cls in registered.items() if type(cls) is type}
    others = [*(cls.__subclasscheck__ for cls in registered.values() if type(cls) is not type), *hooks]
    return lambda cls: (
        not plain.isdisjoint(map(id, mro_of(cls))) or any(_may_say_yes(ask, cls) for ask in others)
    )


def _may_say_yes(ask: Callable[[type], Any], cls: type) -> bool:
    try:
        return ask(cls) not in (False, NotImplemented)
    except Exception as error:  # a Protocol's, for one, looks at who asks
        if raised_by_signal(error):
            raise
        return True


def _is_subclass(cls: type, base: type) -> bool:
    """False where it cannot be asked, as of most Protocols: then the traced code has not asked it either."""
    try:
        return issubclass(cls, base)
    except Exception as error:
        if raised_by_signal(error):
            raise
        return False


def of_table_entry(value: Any) -> Any:
    """What counts of a value that a table has for a class."""
    return fingerprint(value) if type(value) is FunctionType else of_value(value, True)


def of_attribute(owner: Any, name: str) -> Any:
    """What an object has under a name, which may be nothing."""
    return of_value(getattr(owner, name), True) if hasattr(owner, name) else "absent"


def of_file(path: str) -> str:
    """What a file holds, but for the line that a build adds to a package's `__init__`."""
    with open(path, "rb") as file:
        lines = [line.rstrip() for line in file if _ADDED not in line]
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:16]


WHOLE = True
