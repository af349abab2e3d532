"""Notes the objects that a trace has told apart: those that it compared, and those that it wrote to.

Dynamo guards where two of them are one object, and not where they are two; nor where one place is below the
frame's variables and the other below its globals.

Seen in torch 2.11.0 and 2.13.0, read in 2.14.1.
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any

from hatch_precompile.runtime import call_checks
from hatch_precompile.torch_versions import torch_name, way
from hatch_precompile.tracing.assumptions.lookups import modules_with
from hatch_precompile.tracing.assumptions.results import assumed, stop
from hatch_precompile.tracing.assumptions.values import is_only_asked

__all__ = ["apart", "objects_apart", "one", "watch_identities"]


def watch_identities(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.variables import builder, builtin, functions
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if way("is") == "vt_identity_compare":
        for module in modules_with("vt_identity_compare"):
            watch(module, "vt_identity_compare", _compared)
    else:  # the operator is watched in builtins.py
        watch(UserDefinedObjectVariable, "call_method", _equal_if_same)
    watch(builtin.BuiltinVariable, "_comparison_with_tensor", _arrays_compared)
    watch(torch_name("key of a set or a dict"), "__init__", _as_key)
    for name in ("richcompare_impl", "tp_richcompare_impl"):  # 2.11 breaks the graph there
        if name in vars(UserDefinedObjectVariable):
            watch(UserDefinedObjectVariable, name, _compared_in_c)
    for name in ("_track_obj", "track_mutable"):
        watch(SideEffects, name, _met)
    watch(SideEffects, "track_cell_existing", _cell_met)
    watch(functions.UserFunctionVariable, "bind_args", _closure)
    if hasattr(
        functions.UserFunctionVariable, "is_python_equal"
    ):  # newer ones go through vt_identity_compare
        watch(functions.UserFunctionVariable, "is_python_equal", _same_function)
    for kind in (functions.UserFunctionVariable, functions.SkipFunctionVariable):
        watch(kind, "as_python_constant", _function_taken)
    for name in ("mutation", "store_attr"):
        watch(SideEffects, name, _written)
    watch(builder, "make_dupe_guard", _met_again)


def _compared(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a is b`, and what comes to it: `a == b` of objects without an `__eq__`, `a in [b]`. Of numbers and
    text that is the first step of `==` (else builtins.py sees it)."""
    from torch._dynamo.variables import ConstantVariable

    def vt_identity_compare(*compared: Any) -> Any:
        result = own(*compared)
        if result is not None and ConstantVariable not in map(type, compared[-2:]):
            (one if result.as_python_constant() else apart)(*compared[-2:])
        return result

    return vt_identity_compare


def _arrays_compared(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a is b` of arrays, which are tensors to dynamo, made anew of each."""

    def _comparison_with_tensor(self: Any, tx: Any, left: Any, right: Any) -> Any:
        result = own(self, tx, left, right)
        if self.fn in (operator.is_, operator.is_not):
            (one if result.is_constant_match(self.fn is operator.is_) else apart)(left, right)
        return result

    return _comparison_with_tensor


def _compared_in_c(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a == b` of such as dates and bound methods: dynamo compares them itself, and guards their class."""

    def richcompare_impl(self: Any, tx: Any, other: Any, op: str) -> Any:
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

    return richcompare_impl


def _is_compared_in_c(variable: Any, op: str) -> bool:
    """Whether a function of C decides this, which may look at what no guard asks for"""
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if not (variable.is_realized() and isinstance(realized := variable.realize(), UserDefinedObjectVariable)):
        return False
    value = realized.value
    if realized.source is None or realized._base_vt is not None:
        return False
    if isinstance(value, (enum.Enum, str, int, float)):  # their values are guarded
        return False
    comparison = next((vars(base)[op] for base in type(value).__mro__ if op in vars(base)), None)
    return isinstance(comparison, WrapperDescriptorType) and comparison.__objclass__ is not object


def _same_function(own: Callable[..., Any]) -> Callable[..., Any]:
    """Of functions that are looked for, or are keys."""
    from torch._dynamo.variables import functions

    def is_python_equal(self: Any, other: Any) -> bool:
        result: bool = own(self, other)
        # A bound method is made anew each time.
        if type(self) is type(other) is functions.UserFunctionVariable:
            (one if result else apart)(self, other)
        return result

    return is_python_equal


def _function_taken(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function itself is constant to dynamo, and its guard asks for the code."""

    def as_python_constant(self: Any) -> Any:
        function = own(self)
        if self.source is not None and not is_only_asked():
            assumed().taken[self.source] = self
        return function

    return as_python_constant


def _functions_apart() -> None:
    """At the end of a trace: of functions of one code, which ones were one, and which were not."""
    taken = [(_object_of(variable), variable) for variable in assumed().taken.values()]
    for (first, left), (second, right) in itertools.combinations(taken, 2):
        if first is second:
            one(left, right)
        elif (
            type(first) is type(second) is FunctionType and first.__code__.co_code == second.__code__.co_code
        ):
            apart(left, right)


def _equal_if_same(own: Callable[..., Any]) -> Callable[..., Any]:
    """`a == b` of objects without an `__eq__`, where it does not come to `a is b`."""

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = own(self, tx, name, args, kwargs)
        cls: Any = type(self.value)
        if name == "__eq__" and cls.__eq__ is object.__eq__ and result.is_constant_match(False):
            apart(self, args[0])
        return result

    return call_method


def apart(left: Any, right: Any) -> None:
    """Of two objects from outside of the trace, of one type: they were not the same one."""
    places = [_source_of(left), _source_of(right)]
    if None not in places and _type_of(left) is _type_of(right) and not _differ(left, right):
        for each in places:
            _keep_in_tree(each)
        assumed().apart.add((places[0].name, places[1].name))


def one(left: Any, right: Any) -> None:
    """Of two objects from outside of the trace: they were the same one. Most have one variable then; of
    functions each place has its own, and their guards ask for the code."""
    places = [_source_of(left), _source_of(right)]
    if None not in places and places[0] != places[1]:
        _same(*places)


def _same(before: Any, here: Any) -> None:
    from torch._dynamo.source import is_from_skip_guard_source
    from torch._guards import GuardSource

    for each in (before, here):
        if is_from_skip_guard_source(each) or each.guard_source is GuardSource.CONSTANT:
            return  # taken for constant
    for each in (before, here):
        _keep_in_tree(each)
    assumed().same.add((before.name, here.name))


# Dicts that every module has of its own.
_OF_MODULES = {"__dict__", "_parameters", "_buffers", "_modules", *call_checks.HOOKS}

# What guards compare by identity, each with what it was.
_KNOWN = (ModuleType, BuiltinFunctionType, type, enum.Enum, bool, type(None), type(...))


def _differ(left: Any, right: Any) -> bool:
    """Whether their guards tell them apart, by their values"""
    from torch._dynamo.variables import ConstantVariable

    values = [each.as_python_constant() for each in (left, right) if type(each) is ConstantVariable]
    return len(values) == 2 and values[0] != values[1]


def _as_key(own: Callable[..., Any]) -> Callable[..., Any]:
    """What finds its place in a set or a dict by its identity is none of the others there. Of a class or a
    function that is looked for and not there dynamo would make no guard at all."""

    def __init__(self: Any, variable: Any) -> None:  # noqa: N807
        _realize(variable)
        own(self, variable)
        value = _object_of(variable) if variable.is_realized() else None
        cls: Any = type(value)
        if _is_compared_in_c(variable, "__eq__") and _source_of(variable) is not None:
            stop(
                f"an object of the class {cls.__qualname__}, which C code compares, as a key",
                "Take an attribute of it that is a number or text for the key.",
            )
        by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
        if by_identity and value is not None and (source := _source_of(variable)) is not None:
            _keep_in_tree(source)
            assumed().copied[source.name] = id(value)

    return __init__


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


def _object_of(variable: Any) -> Any:
    """The object from outside of the trace that a variable stands for, if it is known as such."""
    held = vars(variable.realize())
    return next((held[name] for name in ("value", "fn", "wrapper_obj") if name in held), None)


def _source_of(variable: Any) -> Any:
    """Where an object is from, if another one may be there in its place without a guard that sees it."""
    from torch._dynamo.source import is_from_skip_guard_source
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


def _cell_met(own: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.source import LocalCellSource

    def track_cell_existing(self: Any, source: Any, cell: Any, contents: Any) -> Any:
        result = own(self, source, cell, contents)
        # The frame's own cannot be asked for.
        if source is not None and not isinstance(source, LocalCellSource):
            assumed().met[id(cell)] = cell, result
        return result

    return track_cell_existing


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _closure(own: Callable[..., Any]) -> Callable[..., Any]:
    """A cell that two functions share has one variable, and of the second place no guard."""
    from torch._dynamo.source import (
        CellContentsSource,
        ClosureSource,
        GetItemSource,
        LocalCellSource,
        LocalSource,
    )

    def bind_args(self: Any, parent: Any, *args: Any, **kwargs: Any) -> Any:
        result = own(self, parent, *args, **kwargs)
        source = self.get_source()
        for index, cell in enumerate((self.fn.__closure__ or ()) if source is not None else ()):
            variable = parent.output.side_effects.id_to_variable.get(id(cell))
            before = variable.source if variable is not None else None
            here = GetItemSource(ClosureSource(source), index)
            if isinstance(before, LocalCellSource):
                assumed().shared.add(before.local_name)
                if _is_filled(cell):
                    own_variable = LocalSource(before.local_name, is_derefed_cell_contents=True)
                    _same(own_variable, CellContentsSource(here, "cell_contents"))
            elif before is not None and before != here:
                _same(before, here)
        return result

    return bind_args


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
                _same(before, here)
        return guard

    return make_dupe_guard


def _written(own: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
        if variable.source is not None:
            # Not by its name: a cell of the frame's own, which a `nonlocal` is written to, has none.
            assumed().written[variable.source] = variable
        return own(self, variable, *args, **kwargs)

    return write


def objects_apart(frame: Any) -> None:
    """At the end of a trace: an object that it has written to was none of the others that it has met, of the
    same type. What it wrote would be seen in them. frame: dynamo's translator of the outermost one"""
    found = assumed()
    by_type: dict[type, list[Any]] = {}
    for item, variable in found.met.values():
        by_type.setdefault(type(item), []).append(variable)
    for item, variable in found.met.values():
        # Of an object of a class derived from dict, list or set, the variable of its dict is written to.
        if variable.source in found.written:
            for other in by_type[type(item)]:
                if other is not variable:
                    apart(variable, other)
    _own_cells_apart(frame)
    _functions_apart()


def _own_cells_apart(frame: Any) -> None:
    """The frame's own cells cannot be asked for, but what is in them can: where it differs, they do."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
    from torch._dynamo.source import CellContentsSource, LocalCellSource, LocalSource

    # What one that goes on after a graph break shares, the call before the break has made.
    if frame.f_code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX):
        return
    found = assumed()
    cells = [(item, variable) for item, variable in found.met.values() if type(item) is CellType]
    for source in found.written:
        if not isinstance(source, LocalCellSource) or source.local_name not in frame.f_code.co_freevars:
            continue
        name = source.local_name
        own = frame.f_locals.get(name)
        filled = [(cell.cell_contents, variable) for cell, variable in cells if _is_filled(cell)]
        if name in found.shared or any(contents is own for contents, _ in filled):
            stop(
                f"the variable {name!r}, which the traced function writes, and others may have",
                "Keep it in an attribute.",
            )
            continue
        here = LocalSource(name, is_derefed_cell_contents=True)
        for _, variable in filled:
            there = CellContentsSource(variable.source, "cell_contents")
            _keep_in_tree(here)
            _keep_in_tree(there)
            found.apart.add((here.name, there.name))
