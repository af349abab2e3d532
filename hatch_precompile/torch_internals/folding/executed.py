"""Notes what of the program dynamo runs while it traces, instead of looking into it, and its operators.

Functions marked with `allow_in_graph`, operators' functions for shapes, a metaclass's `__getitem__`, an
enumeration's `_missing_`, a `__getattribute__`: what they answer is in the graph, and nothing guards it.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Container
from pathlib import Path
from types import CodeType
from typing import Any

import hatch_precompile
from hatch_precompile.runtime import runtime
from hatch_precompile.torch_internals.folding.results import folded, in_the_library, of_torch

__all__ = ["watch_executed"]

# What torch itself calls, for its own ends: packages that it requires, or uses if they are there.
_MACHINERY = (
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "optree", "psutil"),
    *("setuptools", "sympy", "tqdm", "typing_extensions", "yaml"),
)

_METADATA = str(Path(importlib.metadata.__file__).parent)


def watch_executed(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo import output_graph, symbolic_convert
    from torch._subclasses.fake_tensor import FakeTensorMode

    watch(symbolic_convert.InstructionTranslator, "run", _run)
    watch(output_graph.OutputGraph, "call_user_compiler", _compile)
    watch(FakeTensorMode, "dispatch", _dispatch)


def _run(own: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator

    def run(self: Any) -> Any:
        if isinstance(self, InliningInstructionTranslator):
            return own(self)  # below one that is watched
        helpers = folded().helpers
        collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}

        def called(frame: Any, event: str, argument: Any) -> None:
            code = frame.f_code
            if (
                event == "call"
                and _is_programs(code.co_filename)
                and code not in helpers
                and not _is_beside(frame, run.__code__, collecting)
            ):
                helpers[code] = frame.f_globals

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            return own(self)
        finally:
            sys.setprofile(before)

    return run


def _compile(own: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor takes operators, and knows nothing of the program. It is not made slower by our looking."""

    def call_user_compiler(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            return own(self, *args, **kwargs)
        finally:
            sys.setprofile(before)

    return call_user_compiler


_TORCHS_OPERATORS = {"aten", "higher_order", "prim", "prims"}


def _dispatch(own: Callable[..., Any]) -> Callable[..., Any]:
    """Of an operator of others the graph has what its schema says: default values, what it changes."""

    def dispatch(self: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        if operator.namespace not in _TORCHS_OPERATORS:
            folded().operators[str(operator)] = str(operator._schema)
        return own(self, operator, *args, **kwargs)

    return dispatch


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
    ours = [str(Path(module.__file__ or "").parent) for module in (hatch_precompile, runtime("errors"))]
    specs = [spec for name in _MACHINERY if (spec := importlib.util.find_spec(name))]
    folders = [place for spec in specs for place in spec.submodule_search_locations or ()]
    files = [spec.origin for spec in specs if not spec.submodule_search_locations and spec.origin]
    return (*(folder + os.sep for folder in ours + folders), *files)
