"""Notes which keys a trace has asked dicts for.

A dict that somebody derived a class for is often a registry, which grows with what else a process does:
transformers' grows with each class of models that is made. Dynamo guards all its keys and their order,
whatever the traced code has asked for; where that was single keys, an entry asks for these. Dynamo's bytecode
takes what it needs out of such a dict by its place there: then all keys are asked for, in order.

Keys that are no text or numbers dynamo takes by their place in any dict. It guards neither that a key is the
one asked for, where it was found to be, nor that a key is there which was only found and not looked at.

Seen in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from hatch_precompile.torch_versions import torch_name
from hatch_precompile.tracing.assumptions.identities import one
from hatch_precompile.tracing.assumptions.notes import assumed, elements
from hatch_precompile.tracing.assumptions.unguarded import note_found

__all__ = ["Asked", "watch_keys", "watching_items"]


@dataclass
class Asked:
    """What a trace has asked of one dict: these keys, which are strings or numbers, or more than keys.
    source: dynamo's, of the dict"""

    value: dict[Any, Any]
    source: Any
    keys: set[Any] = field(default_factory=set)
    whole: bool = False


# Dynamo's methods that look for one key in the items of a dict, with their parameter that has it.
_BY_KEY = {
    "getitem_const": "arg",
    "getitem_const_raise_exception_if_absent": "arg",
    "maybe_getitem_const": "arg",
    "realize_key_vt": "arg",
    "__contains__": "vt",
}
_NOTE = "_precompile_asked"  # a variable's attribute
_PLAIN = (str, int)


def watch_keys(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo import source
    from torch._dynamo.variables import dicts, user_defined

    for method in ("reconstruct", "reconstruct_pycode"):
        if method in vars(source.ConstDictKeySource):
            watch(source.ConstDictKeySource, method, _taken_by_place)
    watch(user_defined.UserDefinedDictVariable, "__init__", _derived_dict)
    watch(dicts.ConstDictVariable, "clone", _cloned)
    watch(torch_name("key of a set or a dict"), "__eq__", _same_key)


@contextlib.contextmanager
def watching_items() -> Iterator[None]:
    """Each time when dynamo gets at the items of a dict, it is noted for what."""
    from torch._dynamo.variables.dicts import ConstDictVariable

    by_key = {
        vars(ConstDictVariable)[method].__code__: parameter
        for method, parameter in _BY_KEY.items()
        if method in vars(ConstDictVariable)
    }

    def get(self: Any) -> Any:
        items = self.__dict__["items"]
        asked = self.__dict__.get(_NOTE)
        if asked is None:
            frame = sys._getframe(1)
            if frame.f_code in by_key and self.source is not None:
                _note_plain(items, frame.f_locals[by_key[frame.f_code]])
        elif not asked.whole:
            frame = sys._getframe(1)
            _note(asked, frame.f_code, frame.f_locals, by_key)
        return items

    def put(self: Any, items: Any) -> None:
        self.__dict__["items"] = items

    ConstDictVariable.items = property(get, put)
    try:
        yield
    finally:
        del ConstDictVariable.items


def _note(asked: Asked, code: CodeType, given: dict[str, Any], by_key: dict[CodeType, str]) -> None:
    """code: dynamo's function that asks for the items; given: its local variables"""
    try:
        key = given[by_key[code]].as_python_constant()
    except (KeyError, NotImplementedError):
        asked.whole = True
        return
    if type(key) in _PLAIN:
        asked.keys.add(key)
    else:
        asked.whole = True


def _note_plain(items: dict[Any, Any], key: Any) -> None:
    """key: dynamo's variable, that of a constant without a place of its own"""
    if key.source is None and key.is_python_constant() and type(key.as_python_constant()) in _PLAIN:
        found = items.get(torch_name("key of a set or a dict")(key))
        if found is not None:
            note_found(found)


def _same_key(self: Any, other: Any, *, own: Any) -> Any:
    """Dynamo finds a class or a function among the keys and does not guard that it is there, but only what
    lies at its place. Where its variable is realized, it does."""
    from torch._dynamo.source import is_from_skip_guard_source

    same = own(self, other)
    if same is True and self.vt is not other.vt:
        for variable in (self.vt, other.vt):
            # Of what the standard library's modules have dynamo takes all for constant.
            if not (variable.source and is_from_skip_guard_source(variable.source)):
                variable.realize()
        if all(each.is_realized() and _by_identity(each) for each in (self.vt, other.vt)):
            one(self.vt, other.vt)
    return same


def _by_identity(variable: Any) -> bool:
    try:
        found: Any = variable.python_type().__eq__
    except NotImplementedError:
        return False
    return found is object.__eq__


def _taken_by_place(self: Any, codegen: Any, *, own: Any) -> Any:
    for asked in assumed().asked:
        if asked.source == self.base:
            asked.whole = True
    return own(self, codegen)


def _derived_dict(self: Any, value: Any, *args: Any, own: Any, **kwargs: Any) -> None:
    own(self, value, *args, **kwargs)
    items = elements(self)
    # Those are Python's own, and guarded as plain ones are.
    derived = type(value) not in (OrderedDict, defaultdict)
    if items is not None and self.source is not None and derived:
        plain = all(type(key) in _PLAIN for key in dict.keys(value))
        asked = Asked(value, self.source, whole=not plain)
        items.__dict__[_NOTE] = asked
        assumed().asked.append(asked)


def _cloned(self: Any, *, own: Any, **kwargs: Any) -> Any:
    """What is asked of the clone is not noted."""
    asked = self.__dict__.pop(_NOTE, None)
    if asked is not None:
        asked.whole = True
    return own(self, **kwargs)
