"""Looks at objects of others without running their code.

`getattr`, `hasattr`, `vars`, `isinstance` and `repr` ask the object: a lazy module is imported by that, a
proxy goes to what it stands for, any of them may raise. Here nothing is called but what CPython itself
defines. The plugin uses the same functions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

__all__ = [
    "attribute",
    "class_name",
    "dict_of",
    "file_of",
    "has",
    "is_a",
    "is_exactly",
    "module_of",
    "modules",
    "mro_of",
    "qualname_of",
]

_OF_C = (GetSetDescriptorType, MemberDescriptorType)
_MRO: Any = type.__dict__["__mro__"]
_CLASS_DICT: Any = type.__dict__["__dict__"]
_OF_CLASS: Any = type.__dict__["__module__"]
_NAME: Any = type.__dict__["__qualname__"]
_NOTHING: Any = object()


def mro_of(cls: type) -> tuple[type, ...]:
    """A class and all that it is derived from, nearest first."""
    found: tuple[type, ...] = _MRO.__get__(cls)
    return found


def is_a(value: Any, *classes: type) -> bool:
    """Whether a value is an instance of one of the classes. What it says of itself, as the proxies of a
    library do in `__class__`, does not count, nor what a class says of its instances."""
    return issubclass(type(value), classes)


def is_exactly(value: Any, *classes: type) -> bool:
    """Whether a value is an instance of one of the classes themselves. `in` would ask the classes."""
    kind = type(value)
    return any(kind is cls for cls in classes)


def dict_of(value: Any) -> Mapping[str, Any]:
    """An object's own attributes; an empty dict where it has none, or its class has something of its own in
    the place of `__dict__`."""
    for base in mro_of(type(value)):
        descriptor = _CLASS_DICT.__get__(base).get("__dict__")
        if descriptor is not None:
            if not is_exactly(descriptor, *_OF_C):
                return {}
            try:
                found: Any = descriptor.__get__(value)
            except (AttributeError, TypeError):  # of another class, which looks like one of C
                return {}
            return found if is_a(found, dict, MappingProxyType) else {}
    return {}


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """An attribute that is simply there: an object's own, its class's, or one that C code gives. Of a method,
    a property and what `__getattr__` would answer it knows nothing."""
    mro = mro_of(type(value))
    of_class = _among(mro, name)
    if is_exactly(of_class, *_OF_C):
        try:
            return of_class.__get__(value)
        except (AttributeError, TypeError):  # a slot without a value
            return default
    own = _own(value, name)
    if own is not _NOTHING:
        return own
    if of_class is _NOTHING or _among(mro_of(type(of_class)), "__get__") is not _NOTHING:
        return default
    return of_class


def has(value: Any, name: str) -> bool:
    """Whether `attribute` finds one."""
    return attribute(value, name, _NOTHING) is not _NOTHING


def module_of(cls: type) -> str:
    """The name of a class's module; "" where it says none: what it has there may be for its instances."""
    found = _OF_CLASS.__get__(cls)
    return found if type(found) is str else ""


def qualname_of(cls: type) -> str:
    """The name of a class within its module."""
    return str(_NAME.__get__(cls))


def class_name(cls: type) -> str:
    """A class in words: module and qualified name."""
    module, name = module_of(cls), qualname_of(cls)
    return f"{module}.{name}" if module not in ("", "builtins") else name


def file_of(module: Any) -> str:
    """Where a module's source lies; "" where that is not known."""
    found = attribute(module, "__file__")
    return str.__str__(found) if is_a(found, str) else ""


def modules() -> list[tuple[str, Mapping[str, Any]]]:
    """The modules of this process by their names, each with its globals. What stands among them and is no
    module is left out."""
    every = sorted(sys.modules.items())
    return [(name, dict_of(module)) for name, module in every if is_a(module, ModuleType)]


def _own(value: Any, name: str) -> Any:
    if is_a(value, type):
        return _among(mro_of(value), name)
    own: Any = dict_of(value)
    return dict.get(own, name, _NOTHING) if is_a(own, dict) else own.get(name, _NOTHING)


def _among(classes: tuple[type, ...], name: str) -> Any:
    for cls in classes:
        found = _CLASS_DICT.__get__(cls).get(name, _NOTHING)
        if found is not _NOTHING:
            return found
    return _NOTHING


WHOLE = True
