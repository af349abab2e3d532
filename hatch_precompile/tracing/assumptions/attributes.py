"""Watches what dynamo looks up without a guard: what is not there, and what things say of themselves."""

from __future__ import annotations

import abc
import enum
import functools
import typing
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from hatch_precompile.static_lookup import attribute, dict_of, has_global, is_a
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.notes import (
    assumed,
    constants,
    guard_on_attribute,
    has_guards,
    of_torch,
    stop,
)

__all__ = ["watch_attributes"]

# What the fingerprint of a function does not have.
_OF_FUNCTIONS = ("__annotations__", "__dict__", "__doc__", "__module__", "__name__", "__qualname__")


def watch_attributes(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builtin, dicts, functions, misc, user_defined

    if way("getattr() and hasattr()") == "a class each":
        for kind in (builtin.GetAttrBuiltinVariable, builtin.HasAttrBuiltinVariable):
            watch(kind, "call_function", _getattr)
    else:
        for name in ("call_getattr", "call_hasattr"):
            watch(builtin.BuiltinVariable, name, _called_getattr)
    look_up = way("an attribute of most things")
    watch(misc.PythonModuleVariable, look_up, _attribute)
    watch(functions.UserFunctionVariable, look_up, _attribute)
    watch(user_defined.UserDefinedClassVariable, look_up, _of_class)
    watch(builtin.BuiltinVariable, "call_isinstance", _isinstance)
    if way("an object's __dict__") == "a dict":
        watch(dicts.DunderDictVariable, "install_dict_contains_guard", _dict_contains)
        watch(dicts.DunderDictVariable, "install_dict_keys_match_guard", _dict_keys)
        watch(dicts.DunderDictVariable, "call_method", _dict_copied)
    else:
        watch(user_defined.UserDefinedObjectVariable, "has_key_in_generic_dict", _key_of_dict)


def _getattr(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    (name, *_), _ = constants(args[1:2], {}) or ((None,), {})
    if isinstance(name, str):
        assumed().attributes.add(name)
        owner = args[0].realize()
        _of_module(_held(owner, "value"), name)
        _of_function(_held(owner, "fn"), name, owner.source)
    return own(self, tx, args, kwargs)


def _called_getattr(self: Any, tx: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    def called(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        return own(self, tx, *args, **kwargs)

    return _getattr(self, tx, args, kwargs, own=called)


def _held(variable: Any, name: str) -> Any:
    """A field of one of dynamo's variables, or None. Not by getattr: it may be a property that raises."""
    return vars(variable).get(name)


def _attribute(self: Any, tx: Any, name: str, *, own: Any) -> Any:
    _of_module(_held(self, "value"), name)
    _of_function(_held(self, "fn"), name, self.source)
    return own(self, tx, name)


def _of_module(module: Any, name: str) -> None:
    if is_a(module, ModuleType) and not has_global(module, name):
        assumed().absent.add((attribute(module, "__name__"), name))


def _of_function(function: Any, name: str, source: Any) -> None:
    if type(function) is not FunctionType or of_torch(function.__code__.co_filename):
        return
    if name in _OF_FUNCTIONS or not hasattr(function, name):
        assumed().looked_at[function, name] = None
    if has_guards(source) and name not in _OF_FUNCTIONS:  # another function may have the same code
        guard_on_attribute(source, name)


def _of_class(self: Any, tx: Any, name: str, *, own: Any) -> Any:
    """Dynamo keeps no source, and so no guard, for what a class gets from its metaclass, nor in torch 2.11
    for any number or text of a class. It gets a guard here."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource

    result = own(self, tx, name)
    for value in _constants_of(result) if has_guards(self.source) else ():
        asked = GuardBuilder.ID_MATCH if is_a(value, enum.Enum) else GuardBuilder.CONSTANT_MATCH
        install_guard(AttrSource(self.source, name).make_guard(asked))
    return result


def _constants_of(variable: Any) -> Iterator[Any]:
    """The number, text or member of an Enum that a variable of dynamo's stands for, if it does not know where
    it is from."""
    from torch._dynamo.variables import ConstantVariable
    from torch._dynamo.variables.misc import GetAttrVariable

    if type(variable) is GetAttrVariable:
        value = attribute(variable.obj.value, variable.name)
    elif variable.source is None and variable.is_python_constant():
        value = variable.as_python_constant()
    else:
        return
    if ConstantVariable.is_base_literal(value) or is_a(value, enum.Enum):
        yield value


def _isinstance(self: Any, tx: Any, arg: Any, isinstance_type_var: Any, *, own: Any) -> Any:
    """A metaclass's `__instancecheck__` may look at the instance, of which dynamo guards the class alone."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    ((cls,), _) = constants([isinstance_type_var], {}) or ((None,), {})
    # What a class of that class only inherits, and all in a tuple, dynamo asks of the class.
    asks = dict_of(type(cls)).get("__instancecheck__")
    if (
        isinstance(arg, UserDefinedObjectVariable)
        and isinstance(asks, FunctionType)
        and not of_torch(asks.__code__.co_filename)
        and type(cls) is not abc.ABCMeta  # it looks at the class
    ):
        if asks.__module__ not in ("typing", "typing_extensions"):
            stop(
                f"isinstance() of {cls.__qualname__}, whose class has an __instancecheck__ of its own,",
                "Ask for what it looks at.",
            )
        elif attribute(cls, "_is_protocol") and arg.source is not None:
            for name in typing._get_protocol_attrs(cls):  # type: ignore[attr-defined]
                guard_on_attribute(arg.source, name)
                if name in dict_of(arg.value):  # None is no method
                    install_guard(AttrSource(arg.source, name).make_guard(GuardBuilder.TYPE_MATCH))
    return own(self, tx, arg, isinstance_type_var)


def _dict_contains(self: Any, tx: Any, args: Any, *, own: Any) -> None:
    """Dynamo puts no guard on an object's `__dict__`: it knows what the trace changes there, but not what was
    changed before the call."""
    from torch._dynamo.variables.dicts import ConstDictVariable

    own(self, tx, args)
    (key,), _ = constants(args[:1], {}) or ((None,), {})
    there = key in dict_of(_held(self.items.item, "value"))
    if there is (args[0] in self):  # else it is the trace's own doing
        ConstDictVariable.install_dict_contains_guard(self, tx, args)


def _dict_keys(self: Any, *, own: Any) -> None:
    from torch._dynamo.variables.dicts import ConstDictVariable

    own(self)
    ConstDictVariable.install_dict_keys_match_guard(self)


def _dict_copied(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    if name == "copy":
        self.install_dict_keys_match_guard()
    return own(self, tx, name, args, kwargs)


def _key_of_dict(self: Any, tx: Any, key: Any, *, own: Any) -> Any:
    """The same, where dynamo only answers which keys are there: each answer is one guard."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource

    there = own(self, tx, key)
    if self.source is not None and not tx.output.side_effects.has_pending_mutation_of_attr(self, key):
        asked = functools.partial(GuardBuilder.DICT_CONTAINS, key=key, invert=not there)
        install_guard(AttrSource(self.source, "__dict__").make_guard(asked))
    return there
