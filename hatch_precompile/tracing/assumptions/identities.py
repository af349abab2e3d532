"""Notes the objects that a trace has told apart: those that it compared, and those that it wrote to.

Dynamo guards where two of them are one object, and not where they are two; nor where one place is below the
frame's variables and the other below its globals.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from hatch_precompile.runtime import call_checks
from hatch_precompile.torch_versions import torch_name, way
from hatch_precompile.tracing.assumptions.lookups import modules_with
from hatch_precompile.tracing.assumptions.results import assumed

__all__ = ["apart", "objects_apart", "watch_identities"]


def watch_identities(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.variables import builder
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if way("is") == "vt_identity_compare":
        for module in modules_with("vt_identity_compare"):
            watch(module, "vt_identity_compare", _compared)
    else:  # the operator is watched in builtins.py
        watch(UserDefinedObjectVariable, "call_method", _equal_if_same)
    watch(torch_name("key of a set or a dict"), "__init__", _as_key)
    for name in ("_track_obj", "track_mutable"):
        watch(SideEffects, name, _met)
    for name in ("mutation", "store_attr"):
        watch(SideEffects, name, _written)
    watch(builder, "make_dupe_guard", _met_again)


def _compared(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a is b`, and what comes to it: `a == b` of objects without an `__eq__`, `a in [b]`."""

    def vt_identity_compare(*compared: Any) -> Any:
        result = own(*compared)
        if result is not None and not result.as_python_constant():
            apart(*compared[-2:])
        return result

    return vt_identity_compare


def _equal_if_same(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a == b` of objects without an `__eq__`, where it does not come to `a is b`."""

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = own(self, tx, name, args, kwargs)
        cls: Any = type(self.value)
        if name == "__eq__" and cls.__eq__ is object.__eq__ and result.is_constant_match(False):
            apart(self, args[0])
        return result

    return call_method


def apart(one: Any, other: Any) -> None:
    """Of two objects from outside of the trace, of one type: they were not the same one."""
    names = [_source_of(one), _source_of(other)]
    if None not in names and _type_of(one) is _type_of(other):
        for name in names:
            _keep_in_tree(name)
        assumed().apart.add((names[0].name, names[1].name))


# Dicts that every module has of its own.
_OF_MODULES = {"__dict__", "_parameters", "_buffers", "_modules", *call_checks.HOOKS}

# What guards compare by identity, each with what it was, or by its value.
_KNOWN = (
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    type,
    enum.Enum,
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
)


def _as_key(own: Callable[..., Any]) -> Callable[..., Any]:
    """What finds its place in a set or a dict by its identity is none of the others there."""

    def __init__(self: Any, variable: Any) -> None:  # noqa: N807
        own(self, variable)
        value = getattr(variable, "value", None) if variable.is_realized() else None
        cls: Any = type(value)
        by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
        if by_identity and value is not None and (source := _source_of(variable)) is not None:
            _keep_in_tree(source)
            assumed().copied[source.name] = id(value)

    return __init__


def _source_of(variable: Any) -> Any:
    """Where an object is from, if another one may be there in its place without a guard that sees it."""
    from torch._dynamo.source import is_from_skip_guard_source

    realized = variable.realize()
    source = realized.source
    # By its type: dynamo makes a guard of all that a dict or a list holds to give its value.
    known = issubclass(_type_of(realized), _KNOWN)
    if source is None or known or realized.is_tensor():  # tensors are told apart with their check
        return None
    of_module = getattr(source, "member", None) in _OF_MODULES
    return None if of_module or is_from_skip_guard_source(source) else source


def _type_of(variable: Any) -> Any:
    try:
        return variable.python_type()
    except NotImplementedError:
        return type(variable)


def _keep_in_tree(source: Any) -> None:
    """Have dynamo's guards reach a value, so that more can be asked of it."""
    from torch._dynamo.guards import GuardBuilder, install_guard

    install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))


def _met(own: Callable[..., Any]) -> Callable[..., Any]:
    def _track_obj(self: Any, item: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
        result = own(self, item, variable, *args, **kwargs)
        if variable.source is not None:
            assumed().met[id(item)] = item, variable
        return result

    return _track_obj


def _met_again(own: Callable[..., Any]) -> Callable[..., Any]:
    """An object that comes from two places has one variable. That it has to be one is guarded where both are
    below the frame's variables, or both below its globals."""

    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import is_from_skip_guard_source

    def make_dupe_guard(here: Any, before: Any) -> Any:
        guard = own(here, before)
        if guard is None and before is not None and before != here:
            places = [each for each in (before, here) if not is_from_skip_guard_source(each)]
            if len(places) == 1:  # the other is the standard library's, and taken for constant
                install_guard(places[0].make_guard(GuardBuilder.ID_MATCH))
            elif places:
                for each in places:
                    _keep_in_tree(each)
                assumed().same.add((before.name, here.name))
        return guard

    return make_dupe_guard


def _written(own: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
        if variable.source is not None:
            # Not by its name: a cell of the frame's own, which a `nonlocal` is written to, has none.
            assumed().written[variable.source] = variable
        return own(self, variable, *args, **kwargs)

    return write


def objects_apart() -> None:
    """At the end of a trace: an object that it has written to was none of the others that it has met, of the
    same type. What it wrote would be seen in them."""
    found = assumed()
    by_type: dict[type, list[Any]] = {}
    for item, variable in found.met.values():
        by_type.setdefault(type(item), []).append(variable)
    for written in found.written.values():
        item = next((item for item, variable in found.met.values() if variable is written), None)
        for other in by_type.get(type(item), ()):
            if other is not written:
                apart(written, other)
