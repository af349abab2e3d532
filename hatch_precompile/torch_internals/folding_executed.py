"""Notes what of the program dynamo really runs while it traces, instead of looking into it.

Functions marked with `allow_in_graph`, operators' functions for shapes, a metaclass's `__getitem__`, an
enumeration's `_missing_`, a `__getattribute__`: what they answer is in the graph, and nothing guards it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hatch_precompile
from hatch_precompile.runtime import runtime
from hatch_precompile.torch_internals.folding_results import folded, in_the_library, of_torch

__all__ = ["watch_executed"]

# What torch's tracing calls for its own ends.
_MACHINERY = ("mpmath", "networkx", "numpy", "optree", "sympy", "typing_extensions.py")


def watch_executed(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo import output_graph, symbolic_convert

    watch(symbolic_convert.InstructionTranslator, "run", _run)
    watch(output_graph.OutputGraph, "call_user_compiler", _compile)


def _run(own: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator

    def run(self: Any) -> Any:
        if isinstance(self, InliningInstructionTranslator):
            return own(self)  # below one that is watched
        helpers = folded().helpers

        def called(frame: Any, event: str, argument: Any) -> None:
            if event == "call" and _is_programs(frame.f_code.co_filename):
                helpers.setdefault(frame.f_code, frame.f_globals)

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


@functools.cache
def _is_programs(filename: str) -> bool:
    """Whether code is neither torch's, nor Python's, nor ours, nor what these call for their own ends."""
    ours = {str(Path(module.__file__ or "").parent) for module in (hatch_precompile, runtime("errors"))}
    return not (
        filename.startswith("<")
        or of_torch(filename)
        or in_the_library(filename)
        or any(filename.startswith(place + os.sep) for place in ours)
        or any(part in _MACHINERY for part in Path(filename).parts)
    )
