"""What code that ran while dynamo traced has read: its answers are in the trace, without a guard.

Its code shows which names it looks up, but not on which objects: all values found by these are compared.
"""

from __future__ import annotations

import argparse
import dis
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.kinds import Dependency, Value
from hatch_precompile.lower.dependencies.origin import is_librarys
from hatch_precompile.lower.names import Namer
from hatch_precompile.runtime import fingerprints
from hatch_precompile.static_lookup import attribute, dict_of, has, is_a, module_of
from hatch_precompile.tracing import Assumed, closure_of

__all__ = ["ExecutedReads"]

Way = tuple[Any, ...]  # steps of a reference

_DEEP = 3  # attributes of attributes of a global
_STORING = {"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_ATTR"}


class ExecutedReads:
    """Of one trace. `files`, at the end: modules whose file is compared in the place of values."""

    def __init__(self, assumed: Assumed, namer: Namer) -> None:
        self.files: set[str] = set()
        self._assumed = assumed
        self._namer = namer
        self._names = frozenset().union(*map(_names, assumed.helpers))
        # Names that this code stores itself, such as a flag or a counter: a later call finds another value.
        self.stored = frozenset(name for code in assumed.helpers for name in _stored(code))
        self._modules: set[tuple[str, frozenset[str]]] = set()

    def of_modules(self) -> Iterator[Dependency]:
        for code, own in self._assumed.helpers.items():
            module = own.get("__name__", "")
            if dict_of(sys.modules.get(module)) is not own:
                continue  # generated, as what generated it is
            yield from self._read(module, (), own, _names(code))

    def of_function(self, module: str, steps: Way, function: Any) -> Iterator[Dependency]:
        """What is in objects that a function has in its closure, as default arguments and as attributes."""
        if type(function) is not FunctionType or function.__code__ not in self._assumed.helpers:
            return
        places = {
            "__closure__": closure_of(function),
            "__defaults__": function.__defaults__ or (),
            "__kwdefaults__": function.__kwdefaults__ or {},
        }
        for place, values in places.items():
            for key, value in values.items() if isinstance(values, dict) else enumerate(values):
                content = (("a", "cell_contents"),) if place == "__closure__" else ()
                yield from self._held(module, (*steps, ("a", place), ("i", key), *content), value)
        yield from self._read(module, steps, vars(function), self._names)

    def classes(self, taking_part: list[type]) -> Iterator[type]:
        """The classes with a dict, list or set that such code may have read, or a name that it stores."""
        for cls in taking_part:
            own = dict_of(cls)
            known = self._names & own.keys()
            if known & self.stored or any(is_a(own[name], dict, list, set) for name in known):
                yield cls

    def _read(
        self, module: str, way: Way, own: Mapping[str, Any], names: frozenset[str], depth: int = _DEEP
    ) -> Iterator[Dependency]:
        """Of a module's dict, or of what an object below it has."""
        for name in sorted(names & own.keys()):
            value: Any = own[name]
            steps = (*way, ("a", name))
            if name in self.stored or is_a(value, dict, list, set):
                self.files.add(module)  # it may become another as a process goes on; this says how it begins
            elif is_a(value, type):
                yield from self._of_class(module, steps, value, depth)
            elif is_a(value, ModuleType):
                other = attribute(value, "__name__", "")
                known = sys.modules.get(other) is value and not is_librarys(value)
                if not way and known and (other, names) not in self._modules:
                    self._modules.add((other, names))
                    yield from self._read(other, (), dict_of(value), names)
            elif (found := fingerprints.of_value(value, True)) != fingerprints.type_name(type(value)):
                yield Value(module, steps, found)
            else:
                yield from self._held(module, steps, value, depth)

    def _of_class(self, module: str, steps: Way, cls: type, depth: int) -> Iterator[Dependency]:
        try:
            self._namer.reference(cls)
        except Unsupported:
            return
        self._assumed.classes[cls] = None
        own = dict_of(cls)
        for name in sorted(self._names & own.keys()):
            yield from self._held(module, (*steps, ("a", name)), own[name], depth)

    def _held(self, module: str, steps: Way, value: Any, depth: int = _DEEP) -> Iterator[Dependency]:
        own = self._own(value) if depth else None
        if own is not None:
            yield from self._read(module, steps, own, self._names, depth - 1)

    def _own(self, value: Any) -> Mapping[str, Any] | None:
        """What an object has, if it is one of the program's or made of what the program put into it."""
        cls = type(value)
        made = issubclass(cls, (SimpleNamespace, argparse.Namespace, FunctionType, torch.nn.Module))
        if issubclass(cls, (type, ModuleType)) or (not made and _is_librarys(cls)):
            return None
        slots = [dict_of(base).get("__slots__", ()) for base in cls.__mro__]
        names = {name for each in slots for name in ((each,) if isinstance(each, str) else each)}
        given = {name: attribute(value, name) for name in names & self._names if has(value, name)}
        return {**dict_of(value), **given}


def _is_librarys(cls: type) -> bool:
    module = sys.modules.get(module_of(cls))
    return module is None or is_librarys(module)


def _names(code: CodeType) -> frozenset[str]:
    """What code may look up: names, and words for getattr and the like."""
    words = (each for each in code.co_consts if isinstance(each, str) and each.isidentifier())
    return frozenset((*code.co_names, *words))


def _stored(code: CodeType) -> Iterator[str]:
    """The names that code stores, but for attributes that a constructor sets on its own object: those had no
    value before."""
    before = None
    for each in dis.get_instructions(code):
        own = each.opname == "STORE_ATTR" and code.co_name in _CONSTRUCTORS and _is_first(code, before)
        if each.opname in _STORING and not own:
            yield each.argval
        before = each


_CONSTRUCTORS = {"__init__", "__post_init__"}  # what __new__ gets first is the class


def _is_first(code: CodeType, loading: dis.Instruction | None) -> bool:
    """Whether an instruction loads the first parameter, perhaps as the second of two."""
    if loading is None or not loading.opname.startswith("LOAD_FAST"):
        return False
    name = loading.argval[-1] if isinstance(loading.argval, tuple) else loading.argval
    return bool(name == code.co_varnames[0])
