"""Notes whether two objects that a trace has met were one and the same.

Dynamo guards where two of them are one object, and not where they are two; nor where one place is below the
frame's variables and the other below its globals.

Seen in torch 2.11.0 and 2.13.0, read in 2.14.1.
"""

from __future__ import annotations

import enum
from types import BuiltinFunctionType, ModuleType
from typing import Any

from hatch_precompile.runtime import call_checks
from hatch_precompile.tracing.assumptions.notes import assumed, has_guards

__all__ = ["apart", "is_nan", "keep_in_tree", "object_of", "one", "same", "source_of"]


def apart(left: Any, right: Any) -> None:
    """Of two objects from outside of the trace, of one type: they were not the same one."""
    places = [source_of(left), source_of(right)]
    if None not in places and _type_of(left) is _type_of(right) and not _differ(left, right):
        for each in places:
            keep_in_tree(each)
        assumed().apart.add((places[0].name, places[1].name))


def one(left: Any, right: Any) -> None:
    """Of two objects from outside of the trace: they were the same one. Most have one variable then; of
    functions each place has its own, and their guards ask for the code."""
    places = [source_of(left), source_of(right)]
    if None not in places and places[0] != places[1]:
        same(*places)


def same(before: Any, here: Any) -> None:
    if not (has_guards(before) and has_guards(here)):
        return  # taken for constant
    for each in (before, here):
        keep_in_tree(each)
    assumed().same.add((before.name, here.name))


# Dicts that every module has of its own.
_OF_MODULES = {"__dict__", "_parameters", "_buffers", "_modules", *call_checks.HOOKS}

# Types whose objects dynamo's own guards compare by identity.
_KNOWN = (ModuleType, BuiltinFunctionType, type, enum.Enum, bool, type(None), type(...))


def _differ(left: Any, right: Any) -> bool:
    """Whether their guards tell them apart, by their values. To a guard all NaNs are one."""
    from torch._dynamo.variables import ConstantVariable

    values = [each.as_python_constant() for each in (left, right) if type(each) is ConstantVariable]
    return len(values) == 2 and values[0] != values[1] and not all(map(is_nan, values))


def is_nan(value: Any) -> bool:
    """Whether a number does not equal itself: `==`, `in` and keys tell which object it is."""
    return type(value) in (float, complex) and value != value


def object_of(variable: Any) -> Any:
    """The object from outside of the trace that a variable stands for, if it is known as such."""
    realized = variable.realize()
    held = vars(vars(realized).get("im_func", realized))  # of a method, since torch 2.15
    return next((held[name] for name in ("value", "fn", "wrapper_obj") if name in held), None)


def source_of(variable: Any) -> Any:
    """The source of an object, if another object could come from there without a guard that sees it."""
    from torch._dynamo.variables.tensor import NumpyNdarrayVariable

    realized = variable.realize()
    # Tensors are told apart with their check, which sees a new one each time that it is made of an array.
    if realized.is_tensor() and not isinstance(realized, NumpyNdarrayVariable):
        return None
    source = realized.source
    # By its type: dynamo makes a guard of all that a dict or a list holds to give its value.
    if source is None or issubclass(_type_of(realized), _KNOWN):
        return None
    of_module = getattr(source, "member", None) in _OF_MODULES
    return source if has_guards(source) and not of_module else None


def _type_of(variable: Any) -> Any:
    try:
        return variable.python_type()
    except NotImplementedError:
        return type(variable)


def keep_in_tree(source: Any) -> None:
    """Have dynamo's guards reach a value, so that more can be asked of it."""
    from torch._dynamo.guards import GuardBuilder, install_guard

    install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))
