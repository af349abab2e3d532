"""Watches the functions that dynamo calls while it traces, to put their answers into the graph."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from hatch_precompile.torch_internals.folding_results import (
    Call,
    constants,
    folded,
    in_the_library,
    of_torch,
    where,
)

__all__ = ["watch_calls"]


def watch_calls(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import functions, nn_module
    from torch._dynamo.variables import torch as torch_functions

    watch(torch_functions.TorchInGraphFunctionVariable, "call_function", _torch_function)
    watch(functions.SkipFunctionVariable, "call_function", _skipped_function)
    watch(functions.PolyfilledFunctionVariable, "call_function", _polyfilled_function)
    for module in (functions, nn_module):
        watch(module, "invoke_and_store_as_constant", _assumed_constant)


def _record(function: Any, args: Any, kwargs: Any, result: Any, *, state: bool) -> None:
    given = constants(args, kwargs)
    value = constants([result], {})
    if given is None or value is None:
        return
    call = Call(function, given[0], given[1], value[0][0], state, where())
    found = folded()
    if not any(other.function is function and _same(other, call) for other in found.calls):
        found.calls.append(call)


def _same(one: Call, other: Call) -> bool:
    return repr((one.args, one.kwargs)) == repr((other.args, other.kwargs))


def _torch_function(own: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.variables.torch import constant_fold_functions, tracing_state_functions

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        function = self.value
        with _watching_helpers(function):
            result = own(self, tx, args, kwargs)
        if not result.is_python_constant() or function in tracing_state_functions():
            return result
        if getattr(function, "__module__", "") == "math":
            return result
        # What else gives nothing sets something, for the trace.
        if function in constant_fold_functions or not result.is_constant_none():
            _record(function, args, kwargs, result, state=True)
        return result

    return call_function


@contextlib.contextmanager
def _watching_helpers(function: Any) -> Iterator[None]:
    """What a function of the program's own, which dynamo calls without looking into it, calls in turn."""
    if not _is_programs(function):
        yield
        return
    helpers = folded().helpers
    before = sys.getprofile()

    # Of a function only what it calls itself; below an operator there is no frame of the program's.
    own = _codes(function)
    depth = 0 if own else 1

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if event == "call" and code in own:
            depth += 1
        if event == "call" and depth and not _is_machinery(code, frame.f_globals.get("__name__", "")):
            helpers[code] = None
        if event == "return" and code in own:
            depth -= 1

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


def _is_programs(function: Any) -> bool:
    """Whether it is the program's: an operator of its own, or a function that torch may have wrapped."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = getattr(function, "_qualified_op_name", None) or function._schema.name
        return str(name).partition("::")[0] not in ("aten", "prims", "prim")
    return bool(_codes(function))


def _codes(function: Any) -> set[CodeType]:
    """The program's own code of a function, behind what torch has put around it."""
    found: set[CodeType] = set()
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and not of_torch(code.co_filename):
            found.add(code)
        function = getattr(function, "__wrapped__", None)
    return found


_MACHINERY = {
    *("hatch_precompile", "hatch_precompile_runtime", "sympy", "mpmath", "typing_extensions"),
    *("numpy", "networkx", "optree"),
}


def _is_machinery(code: CodeType, module: str) -> bool:
    """Whether code runs in any trace: torch's, what torch calls for its own ends, or ours."""
    own = module.partition(".")[0] in ("sympy", "mpmath", "hatch_precompile", "hatch_precompile_runtime")
    return (
        own
        or of_torch(code.co_filename)
        or in_the_library(code.co_filename)
        or code.co_filename.startswith("<")
    )


def _skipped_function(own: Callable[..., Any]) -> Callable[..., Any]:
    import importlib.metadata
    import importlib.util

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        result = own(self, tx, args, kwargs)
        if self.value is importlib.util.find_spec:
            (name, *_), _ = constants(args, kwargs) or ((None,), {})
            if isinstance(name, str):
                folded().installed[name] = not result.is_constant_none()
        elif self.value is importlib.metadata.version:
            _record(self.value, args, kwargs, result, state=False)
        return result  # all else there is matches regular expressions, of constants

    return call_function


def _polyfilled_function(own: Callable[..., Any]) -> Callable[..., Any]:
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        result = own(self, tx, args, kwargs)
        # inspect looks as far as recursion may go, and no further.
        bound = self.fn is sys.getrecursionlimit and in_the_library(tx.f_code.co_filename)
        if (
            self.can_constant_fold_through()
            and getattr(self.fn, "__module__", "") != "builtins"
            and not bound
        ):
            _record(self.fn, args, kwargs, result, state=False)
        return result

    return call_function


def _assumed_constant(own: Callable[..., Any]) -> Callable[..., Any]:
    def invoke_and_store_as_constant(tx: Any, fn: Any, name: str, args: Any, kwargs: Any) -> Any:
        kept: list[Any] = []

        def called(*values: Any, **named: Any) -> Any:
            kept.append((values, named, fn(*values, **named)))
            return kept[-1][2]

        result = own(tx, called, name, args, kwargs)
        for values, named, value in kept:
            folded().calls.append(Call(fn, values, named, value, False, where()))
        return result

    return invoke_and_store_as_constant
