"""Watches the functions that dynamo calls while it traces, to put their answers into the graph."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from hatch_precompile.tracing.assumptions.notes import (
    Call,
    assumed,
    constants,
    in_the_library,
    stop,
    where,
)

__all__ = ["assumed_constants", "watch_calls"]


def watch_calls(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builtin, ctx_manager, functions, nn_module
    from torch._dynamo.variables import torch as torch_functions

    watch(torch_functions.TorchInGraphFunctionVariable, "call_function", _torch_function)
    watch(functions.SkipFunctionVariable, "call_function", _skipped_function)
    watch(functions.PolyfilledFunctionVariable, "call_function", _polyfilled_function)
    watch(builtin.BuiltinVariable, "call_dir", _dir)
    watch(ctx_manager.AutocastModeVariable, "enter", _autocast)
    watch(functions.TritonKernelVariable, "call_function", _triton_kernel)
    for module in (functions, nn_module):
        watch(module, "invoke_and_store_as_constant", _assumed_constant)


def _record(function: Any, args: Any, kwargs: Any, result: Any, *, state: bool) -> None:
    given = constants(args, kwargs)
    value = constants([result], {})
    if given is None or value is None:
        return
    _keep(Call(function, given[0], given[1], value[0][0], state, where()))


def _keep(call: Call) -> None:
    found = assumed()
    if not any(other.function is call.function and _same(other, call) for other in found.calls):
        found.calls.append(call)


def _same(one: Call, other: Call) -> bool:
    return repr((one.args, one.kwargs)) == repr((other.args, other.kwargs))


def _torch_function(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    from torch._dynamo.variables.torch import constant_fold_functions, tracing_state_functions

    function = self.value
    result = own(self, tx, args, kwargs)
    if not result.is_python_constant() or function in tracing_state_functions():
        return result
    if getattr(function, "__module__", "") == "math" or function is torch.jit.annotate:
        return result  # annotate() gives back its last argument
    # What else gives nothing sets something, for the trace.
    if function in constant_fold_functions or not result.is_constant_none():
        _record(function, args, kwargs, result, state=True)
    return result


def _autocast(self: Any, tx: Any, *args: Any, own: Any) -> Any:
    """Without a type it takes that which is set for the device, for which torch's compiler asks later."""
    device, dtype, enabled, *_ = self.target_values
    if dtype is None and enabled:
        ask = torch.get_autocast_dtype
        _keep(Call(ask, (device,), {}, ask(device), True, where()))
    return own(self, tx, *args)


def _triton_kernel(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    """A kernel is compiled from its source and what that refers to. Triton has a digest of all of it."""
    steps, kernel = ["cache_key"], self.kernel
    while not hasattr(kernel, "cache_key"):
        kernel = kernel.fn  # with @triton.autotune and the like it is inside
        steps.insert(0, "fn")
    given = (getattr, tuple(steps), self.kernel)
    _keep(Call(functools.reduce, given, {}, kernel.cache_key, False, where()))
    return own(self, tx, args, kwargs)


def _skipped_function(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    import importlib.metadata
    import importlib.util

    result = own(self, tx, args, kwargs)
    if self.value is importlib.util.find_spec:
        (name, *_), _ = constants(args, kwargs) or ((None,), {})
        if isinstance(name, str):
            assumed().installed[name] = not result.is_constant_none()
    elif self.value is importlib.metadata.version:
        _record(self.value, args, kwargs, result, state=False)
    return result  # all else there is matches regular expressions, of constants


def _polyfilled_function(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    result = own(self, tx, args, kwargs)
    # inspect looks as far as recursion may go, and no further.
    bound = self.fn is sys.getrecursionlimit and in_the_library(tx.f_code.co_filename)
    if self.can_constant_fold_through() and getattr(self.fn, "__module__", "") != "builtins" and not bound:
        _record(self.fn, args, kwargs, result, state=False)
    return result


# Names that dynamo gave to answers, among the globals of a module. They are there until the process ends.
_assumed: dict[str, set[str]] = {}


def assumed_constants(module_globals: dict[str, Any]) -> set[str]:
    """The names in a module that dynamo has given to what a function returned that is assumed constant."""
    return _assumed.get(module_globals.get("__name__", ""), set())


def _assumed_constant(tx: Any, fn: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    kept: list[Any] = []
    scope = tx.output.global_scope
    before = set(scope)

    def called(*values: Any, **named: Any) -> Any:
        kept.append((values, named, fn(*values, **named)))
        return kept[-1][2]

    result = own(tx, called, name, args, kwargs)
    _assumed.setdefault(scope.get("__name__", ""), set()).update(scope.keys() - before)
    for values, named, value in kept:
        assumed().calls.append(Call(fn, values, named, value, False, where()))
    return result


def _dir(self: Any, tx: Any, arg: Any, *, own: Any) -> Any:
    from torch._dynamo.variables.functions import UserFunctionVariable

    result = own(self, tx, arg)
    if result is not None and type(arg) is UserFunctionVariable and arg.source is not None:
        stop("dir() of a function", "Ask for the attribute, by hasattr().")
    value = vars(arg).get("value", vars(arg).get("fn"))
    names = constants([result], {})
    if value is not None and names is not None:
        assumed().calls.append(Call(dir, (value,), {}, names[0][0], False, where()))
    return result
