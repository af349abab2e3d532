"""What one trace rests on besides its guards; filled in while dynamo traces."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from hatch_precompile.torch_versions import way

__all__ = [
    "Call",
    "Assumed",
    "Obstacle",
    "asked_environment",
    "closure_of",
    "constants",
    "assumed",
    "assumed_in",
    "guard_on_attribute",
    "has_guards",
    "in_the_library",
    "of_torch",
    "stop",
    "value_of",
    "where",
]


@dataclass(frozen=True)
class Call:
    """A function that dynamo called while it traced, and put the answer into the graph.

    state: whether it asks the process for something that may be different at the next call
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    state: bool
    where: str


@dataclass(frozen=True)
class Obstacle:
    """Something that was taken for constant and cannot be compared in another process."""

    construct: str
    where: str
    advice: str


@dataclass
class Assumed:
    """What one frame's trace rests on.

    functions: those whose code was traced, with whether a guard led to each; helpers: code of the program
    that ran while tracing, with its globals; classes: all that took part; attributes: names looked up
    looked_at: (function, its attribute); builtins: (module, name) of those that no global hides
    absent: (module, name) of attributes that were asked for and are not there
    copied: dynamo's name -> identity, of objects that copy.deepcopy, a set or a dict has told apart
    inserted: dynamo's sets whose order is that in which the traced code has added to them, by id
    lacking: (class, how many of its __mro__) -> names that these were found not to have
    apart: dynamo's names of two objects that are not the same one
    same: dynamo's names of two places where one object was
    shared: the frame's variables whose cells functions that it calls have, too
    met: objects from outside of the trace, with dynamo's variables for them, by id
    written: of those, the ones that the traced code has changed, by dynamo's sources
    taken: functions and NaNs that were taken for constants, by dynamo's sources, with its variables
    orders_seen: the keys of dicts whose order the traced code has seen
    operators: those that are not torch's own, "namespace.name.overload", with their schemas
    closures: of helpers with free variables, what their cells held, by its ids; None for an empty cell
    asked: what was asked of each dict of a class derived from dict (keys.py)
    found: dynamo's sources of what the traced code has found and not looked at so far, with its variables
    draws: whether the graph has random numbers
    environment: variables with their values, None for one that is not set
    names: (module, name) of globals of the standard library, which dynamo takes for constant
    objects: instances and members of enumerations that were met without a guard
    installed: modules that `importlib.util.find_spec` was asked for, with whether it found them
    called: modules that were called in the trace, and so their hooks, by id
    """

    functions: dict[FunctionType, bool] = field(default_factory=dict)
    helpers: dict[CodeType, dict[str, Any]] = field(default_factory=dict)
    closures: dict[CodeType, dict[tuple[int, ...], tuple[Any, ...]]] = field(default_factory=dict)
    classes: dict[type, None] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    draws: bool = False
    environment: dict[str, str | None] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)
    installed: dict[str, bool] = field(default_factory=dict)
    obstacles: list[Obstacle] = field(default_factory=list)
    called: dict[int, Any] = field(default_factory=dict)
    looked_at: dict[tuple[FunctionType, str], None] = field(default_factory=dict)
    builtins: set[tuple[str, str]] = field(default_factory=set)
    absent: set[tuple[str, str]] = field(default_factory=set)
    copied: dict[str, int] = field(default_factory=dict)
    inserted: dict[int, Any] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    lacking: dict[tuple[type, int], set[str]] = field(default_factory=dict)
    apart: set[tuple[str, str]] = field(default_factory=set)
    met: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    written: dict[Any, Any] = field(default_factory=dict)
    taken: dict[Any, Any] = field(default_factory=dict)
    orders_seen: set[tuple[Any, ...]] = field(default_factory=set)
    asked: list[Any] = field(default_factory=list)
    found: dict[Any, Any] = field(default_factory=dict)
    same: set[tuple[str, str]] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)


_KEPT = "_precompile_assumed"


def assumed_in(output_graph: Any) -> Assumed:
    """What one trace took for constant."""
    found: Assumed = vars(output_graph.tracing_context).setdefault(_KEPT, Assumed())
    return found


def assumed() -> Assumed:
    """For the trace under way. Dynamo starts a frame again, with a new context, where it breaks a graph."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return Assumed()
    found: Assumed = vars(context).setdefault(_KEPT, Assumed())
    return found


def where() -> str:
    """The line of the program that is being traced: `model.py:10 in forward`."""
    stack = [frame for frame in torch._guards.TracingContext.extract_stack() if not of_torch(frame.filename)]
    own = [frame for frame in stack if not in_the_library(frame.filename)] or stack
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""


@functools.cache
def of_torch(filename: str) -> bool:
    """Whether a file is one of torch\'s."""
    return filename.startswith(str(Path(torch.__file__).parent) + os.sep)


def stop(construct: str, advice: str) -> None:
    """Keep an obstacle at the line that is being traced."""
    assumed().obstacles.append(Obstacle(construct, where(), advice))


def asked_environment(method: CodeType, name: Any) -> None:
    """A method of os.environ was called: one variable is an input of the graph."""
    if method is os._Environ.__getitem__.__code__:
        variable = os.fsdecode(name)
        assumed().environment[variable] = os.environ.get(variable)
    else:
        stop(
            f"os.environ is looked at as a whole (its {method.co_name})",
            'Read single variables: os.environ.get("NAME").',
        )


def constants(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The values of arguments, where all are known while tracing."""
    try:
        return (
            tuple(arg.as_python_constant() for arg in args),
            {name: value.as_python_constant() for name, value in kwargs.items()},
        )
    except NotImplementedError:
        return None


# Attributes of dynamo's variables: that of torch 2.13 and 2.14, those of 2.11
_ELEMENTS = ("_base_vt", "_dict_vt", "_set_vt", "_list_vt", "_tuple_vt")


def elements(variable: Any) -> Any:
    """Dynamo's variable for the elements of an object whose class is derived from dict, list, set or tuple:
    since torch 2.15 the same one. None for another object."""
    if way("elements of an object") == "a variable of their own":
        held = vars(variable)
        return next((held[name] for name in _ELEMENTS if held.get(name) is not None), None)
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.sets import BaseSetVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    of_elements = isinstance(variable, (ConstDictVariable, BaseListVariable, BaseSetVariable))
    return variable if of_elements and isinstance(variable, UserDefinedObjectVariable) else None


def has_guards(source: Any) -> bool:
    """Whether dynamo can guard what is at one of its sources. None: what the trace has made itself"""
    from torch._dynamo.source import is_from_skip_guard_source
    from torch._guards import GuardSource

    return (
        source is not None
        and not source.is_ephemeral()
        and source.guard_source not in (GuardSource.CONSTANT, GuardSource.BACKWARD_STATE)
        and not is_from_skip_guard_source(source)
    )


def guard_on_attribute(source: Any, name: str) -> None:
    """Have dynamo guard on whether the object from there has an attribute, as it has now."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource

    if way("a guard on whether there is an attribute") == "on its owner":
        install_guard(source.make_guard(functools.partial(GuardBuilder.HASATTR, attr=name)))
    else:
        install_guard(AttrSource(source, name).make_guard(GuardBuilder.HASATTR))


def value_of(source: Any, frame: Any) -> Any:
    """What is at one of dynamo's sources. frame: dynamo's translator of the outermost one"""
    from torch._dynamo.guards import _get_closure_vars

    return source.get_value({"G": frame.f_globals, "L": frame.f_locals}, dict(_get_closure_vars()), {})


def closure_of(function: FunctionType) -> tuple[Any, ...]:
    """What is in a function's cells; None for an empty one."""

    def content(cell: Any) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return None

    return tuple(map(content, function.__closure__ or ()))


def in_the_library(filename: str) -> bool:
    """Whether a file is of Python\'s standard library."""
    return (
        filename.startswith(("<frozen ", str(Path(os.__file__).parent))) and "site-packages" not in filename
    )
