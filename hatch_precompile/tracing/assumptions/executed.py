"""Notes what of the program dynamo runs while it traces, instead of looking into it, and its operators.

Functions marked with `allow_in_graph`, operators' functions for shapes, a metaclass's `__getitem__`, an
enumeration's `_missing_`, a `__getattribute__`: what they answer is in the graph, and nothing guards it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch._library import autograd, simple_registry

import hatch_precompile
from hatch_precompile.runtime import errors
from hatch_precompile.static_lookup import attribute, dict_of, is_a
from hatch_precompile.tracing.assumptions.aliasing import objects_apart
from hatch_precompile.tracing.assumptions.notes import (
    asked_environment,
    assumed,
    closure_of,
    in_the_library,
    of_torch,
)
from hatch_precompile.tracing.assumptions.unguarded import guard_what_was_found

__all__ = ["watch_executed"]

# What torch itself calls, for its own ends: packages that it requires, or uses if they are there.
_MACHINERY = (
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "optree", "psutil"),
    *("setuptools", "sympy", "tqdm", "triton", "typing_extensions", "yaml"),
)

_METADATA = str(Path(importlib.metadata.__file__).parent)


def watch_executed(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo import output_graph, symbolic_convert
    from torch._subclasses.fake_tensor import FakeTensorMode

    watch(symbolic_convert.InstructionTranslator, "run", _run)
    watch(output_graph.OutputGraph, "call_user_compiler", _compile)
    watch(output_graph.OutputGraph, "run_compiler_collective", _traced)
    watch(FakeTensorMode, "dispatch", _dispatch)


def _run(self: Any, *, own: Any) -> Any:
    with _noting_what_runs(sys._getframe().f_code):
        return own(self)


@contextlib.contextmanager
def _noting_what_runs(outermost: CodeType) -> Iterator[None]:
    """outermost: the code whose frame it is below"""
    found = assumed()
    helpers, closures = found.helpers, found.closures
    collecting = {attribute(callback, "__code__") for callback in gc.callbacks}

    def called(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code in _OF_ENVIRONMENT and _for_the_program(frame.f_back):
            asked_environment(code, frame.f_locals.get("key"))
        if (
            event == "call"
            and _is_programs(code.co_filename)
            and (code not in helpers or code.co_freevars)
            and not _is_beside(frame, outermost, collecting)
        ):
            if code not in helpers:
                helpers[code] = frame.f_globals
                for value in filter(_keeps, map(frame.f_globals.get, code.co_names)):
                    _add(attribute(value, "__wrapped__"))
            if code.co_freevars:
                cells = tuple(map(frame.f_locals.get, code.co_freevars))
                closures.setdefault(code, {})[tuple(map(id, cells))] = cells

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


def _all_traced(output_graph: Any) -> None:
    """All is traced, and guards are still to be made."""
    objects_apart(output_graph.root_tx)
    guard_what_was_found(output_graph.root_tx)


def _traced(self: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    """What is called when all is traced, and guards are still to be made: also where there is no graph."""
    _all_traced(self)
    return own(self, *args, **kwargs)


def _compile(self: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    """Inductor runs no code of the program, so it runs without our profile function, which is slow."""
    _all_traced(self)
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        return own(self, *args, **kwargs)
    finally:
        sys.setprofile(before)


# torch's, and ours: a backend puts something else in the place of these before a graph is compiled.
_NO_PROGRAMS = {"aten", "higher_order", "prim", "prims", "hatch_precompile"}


def _dispatch(self: Any, operator: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    """Of an operator of others the graph has what its schema says: default values, what it changes; and what
    its functions for shapes and gradients do. Those that only a backward needs run when nobody watches."""
    if operator.namespace not in _NO_PROGRAMS:
        assumed().operators[str(operator)] = str(operator._schema)
        for function in (*_for_shapes(operator), *_for_gradients(sys._getframe(1))):
            _add(function)
    if torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()) and not _drops_nothing(
        operator, args, kwargs
    ):
        assumed().draws = True
    return own(self, operator, *args, **kwargs)


def _drops_nothing(operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether it is an attention without dropout."""
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return "dropout_p" in names and not given.get("dropout_p")


def _for_shapes(operator: Any) -> Iterator[Any]:
    entry = simple_registry.singleton._data.get(operator.name())
    if entry is not None and entry.fake_impl.kernel is not None:
        yield entry.fake_impl.kernel.func


def _for_gradients(frame: Any) -> Iterator[Any]:
    """What was given to torch.library.register_autograd: in the frames of torch's that call the operator."""
    while frame is not None and frame.f_code.co_name not in ("run", "call_user_compiler"):
        if frame.f_code.co_filename == autograd.__file__ and "info" in frame.f_code.co_freevars:
            info = frame.f_locals["info"]
            if info._backward_fn is not None and not hasattr(info._backward_fn, _WATCHED):
                info._backward_fn = _watched(info._backward_fn)
            yield from (info._setup_context_fn, getattr(info._backward_fn, _WATCHED, None))
        frame = frame.f_back


_WATCHED = "_precompile_watched"


def _watched(function: Any) -> Any:
    """The formula of a gradient, which runs below the compiler, where nobody looks."""

    def backward(*args: Any, **kwargs: Any) -> Any:
        with _noting_what_runs(backward.__code__):
            return function(*args, **kwargs)

    setattr(backward, _WATCHED, function)
    return backward


def _add(function: Any) -> None:
    """A function as one that ran, with those of its module that it names."""
    found = assumed()
    if type(function) is not FunctionType or not _is_programs(function.__code__.co_filename):
        return
    code = function.__code__
    cells = closure_of(function)
    if cells:
        found.closures.setdefault(code, {})[tuple(map(id, cells))] = cells
    if code not in found.helpers:
        found.helpers[code] = function.__globals__
        if {"environ", "getenv"} & set(code.co_names):
            for name in code.co_consts:  # what of them it asks for is not seen
                if isinstance(name, str) and name.isidentifier():
                    found.environment[name] = os.environ.get(name)
        for value in (*_named(code, function.__globals__), *cells):
            _add(value)


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """What code may call of its module, and of modules that it names."""
    for name in code.co_names:
        value: Any = names.get(name)
        if is_a(value, ModuleType):
            yield from map(dict_of(value).get, code.co_names)
        else:
            # One that keeps its answers may have run before.
            yield attribute(value, "__wrapped__") if _keeps(value) else value


def _keeps(value: Any) -> bool:
    return is_a(value, functools._lru_cache_wrapper)


_OF_ENVIRONMENT = {
    getattr(os._Environ, name).__code__
    for name in ("__getitem__", "__iter__", "__len__", "copy", "__or__", "__ror__")
}


def _for_the_program(frame: Any) -> bool:
    """Whether a function of the program's asks, perhaps through Python's library."""
    while frame is not None and in_the_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and _is_programs(frame.f_code.co_filename)


def _is_beside(frame: Any, run: CodeType, collecting: Container[Any]) -> bool:
    """Whether code runs for the process and not for the trace.

    Below an import or the garbage collector; or below `importlib.metadata`, whose finders (a backport's)
    are the process's own, and whose answers are asked for again.
    """
    while frame is not None and frame.f_code is not run:
        code = frame.f_code
        if (
            code.co_filename.startswith(("<frozen importlib", _METADATA))
            or code.co_name == "__del__"
            or code in collecting
        ):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _is_programs(filename: str) -> bool:
    """Whether code is neither torch's, nor Python's, nor ours, nor what these call for their own ends."""
    return not (filename.startswith(("<", *_passed_over())) or of_torch(filename) or in_the_library(filename))


@functools.cache
def _passed_over() -> tuple[str, ...]:
    """Where this package's own code lies, and that of `_MACHINERY`."""
    ours = [str(Path(module.__file__ or "").parent) for module in (hatch_precompile, errors)]
    specs = [spec for name in _MACHINERY if (spec := importlib.util.find_spec(name))]
    folders = [place for spec in specs for place in spec.submodule_search_locations or ()]
    files = [spec.origin for spec in specs if not spec.submodule_search_locations and spec.origin]
    return (*(folder + os.sep for folder in ours + folders), *files)
