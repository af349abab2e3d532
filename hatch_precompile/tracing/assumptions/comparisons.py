"""Notes what a trace has compared by identity, as `is`, `==`, `in` and dicts do.

Seen in torch 2.11.0, 2.12.1 and 2.13.0, read in 2.14.1.
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Callable
from types import FunctionType, WrapperDescriptorType
from typing import Any

from hatch_precompile.torch_versions import torch_name, way
from hatch_precompile.tracing.assumptions.identities import (
    apart,
    is_nan,
    keep_in_tree,
    object_of,
    one,
    source_of,
)
from hatch_precompile.tracing.assumptions.lookups import modules_with
from hatch_precompile.tracing.assumptions.notes import assumed, elements, stop
from hatch_precompile.tracing.assumptions.values import is_only_asked

__all__ = ["constants_apart", "watch_comparisons"]


def watch_comparisons(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builtin, functions
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if way("is") == "vt_identity_compare":
        for module in modules_with("vt_identity_compare"):
            watch(module, "vt_identity_compare", _compared)
    # Else the operator is watched, in builtins.py.
    if way("== of objects") == "call_method":
        watch(UserDefinedObjectVariable, "call_method", _equal_if_same)
    else:  # call_method breaks the graph where C code compares
        watch(UserDefinedObjectVariable, way("== of objects"), _compared_in_c)
    watch(builtin.BuiltinVariable, "_comparison_with_tensor", _arrays_compared)
    watch(torch_name("key of a set or a dict"), "__init__", _as_key)
    if hasattr(
        functions.UserFunctionVariable, "is_python_equal"
    ):  # newer ones go through vt_identity_compare
        watch(functions.UserFunctionVariable, "is_python_equal", _same_function)
    for kind in (functions.UserFunctionVariable, functions.SkipFunctionVariable):
        watch(kind, "as_python_constant", _function_taken)


def _compared(*compared: Any, own: Any) -> Any:
    """`a is b`, and what comes to it: `a == b` of objects without an `__eq__`, `a in [b]`. Of numbers and
    text that is the first step of `==` (else builtins.py sees it)."""
    from torch._dynamo.variables import ConstantVariable

    result = own(*compared)
    if result is not None and ConstantVariable not in map(type, compared[-2:]):
        (one if result.as_python_constant() else apart)(*compared[-2:])
    return result


def _arrays_compared(self: Any, tx: Any, left: Any, right: Any, *, own: Any) -> Any:
    """`a is b` of arrays, which are tensors to dynamo, made anew of each."""
    result = own(self, tx, left, right)
    if self.fn in (operator.is_, operator.is_not):
        (one if result.is_constant_match(self.fn is operator.is_) else apart)(left, right)
    return result


def _compared_in_c(self: Any, tx: Any, other: Any, op: str, *, own: Any) -> Any:
    """`a == b` of such as dates and bound methods: dynamo compares them itself, and guards their class."""
    result = own(self, tx, other, op)
    if (
        _is_compared_in_c(self, op)
        and result.is_python_constant()
        and result.as_python_constant() is not NotImplemented
    ):
        stop(
            f"a comparison with an object of the class {self.python_type_name()}, which C code makes",
            "Compare its attributes that are numbers or text.",
        )
    return result


def _is_compared_in_c(variable: Any, op: str) -> bool:
    """Whether a function of C decides this, which may look at what no guard asks for"""
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if not (variable.is_realized() and isinstance(realized := variable.realize(), UserDefinedObjectVariable)):
        return False
    value = realized.value
    if realized.source is None or elements(realized) is not None:
        return False
    if isinstance(value, (enum.Enum, str, int, float)):  # their values are guarded
        return False
    comparison = next((vars(base)[op] for base in type(value).__mro__ if op in vars(base)), None)
    return isinstance(comparison, WrapperDescriptorType) and comparison.__objclass__ is not object


def _same_function(self: Any, other: Any, *, own: Any) -> bool:
    """Of functions that are looked for, or are keys."""
    from torch._dynamo.variables import functions

    result: bool = own(self, other)
    # A bound method is made anew each time.
    if type(self) is type(other) is functions.UserFunctionVariable:
        (one if result else apart)(self, other)
    return result


def _function_taken(self: Any, *, own: Any) -> Any:
    """A function itself is constant to dynamo, and its guard asks for the code."""
    function = own(self)
    if self.source is not None and not is_only_asked():
        assumed().taken[self.source] = self
    return function


def constants_apart() -> None:
    """At the end of a trace, note of functions with the same code, and of NaNs, which were one object and
    which were not."""
    taken = [(object_of(variable), variable) for variable in assumed().taken.values()]
    for (first, left), (second, right) in itertools.combinations(taken, 2):
        if first is second:
            one(left, right)
        elif (is_nan(first) and is_nan(second)) or _have_one_code(first, second):
            apart(left, right)


def _have_one_code(first: Any, second: Any) -> bool:
    both_functions = type(first) is type(second) is FunctionType
    return both_functions and first.__code__.co_code == second.__code__.co_code


def _equal_if_same(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    """`a == b` of objects without an `__eq__`, as torch before 2.13 does it."""
    result = own(self, tx, name, args, kwargs)
    cls: Any = type(self.value)
    if name == "__eq__" and cls.__eq__ is object.__eq__ and result.is_constant_match(False):
        apart(self, args[0])
    return result


def _as_key(self: Any, variable: Any, *, own: Any) -> None:
    """A key that is found by its identity is none of the other keys there. Of a class or a function that is
    looked for and not there dynamo would make no guard at all."""
    _realize(variable)
    own(self, variable)
    value = object_of(variable) if variable.is_realized() else None
    cls: Any = type(value)
    if _is_compared_in_c(variable, "__eq__") and source_of(variable) is not None:
        stop(
            f"an object of the class {cls.__qualname__}, which C code compares, as a key",
            "Take an attribute of it that is a number or text for the key.",
        )
    by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    if by_identity and value is not None and (source := source_of(variable)) is not None:
        keep_in_tree(source)
        assumed().copied[source.name] = id(value)


def _realize(variable: Any) -> None:
    """Have dynamo make its guard of a key, and of each in a tuple; but not of those that a dict or a set has,
    of which one is found or none (keys.py)."""
    from torch._dynamo import source
    from torch._dynamo.variables.lists import BaseListVariable

    own = (source.ConstDictKeySource, source.NonSerializableSetGetItemSource)
    place = None if variable.is_realized() else variable.source
    if place is not None and (isinstance(place, own) or source.is_from_skip_guard_source(place)):
        return
    realized = variable.realize()
    if isinstance(realized, BaseListVariable):
        for item in realized.items:
            _realize(item)
