"""Watches every place where dynamo takes something for constant that it has no guard for.

What cannot change within one process it does not guard: the code that it inlines, what a class has, the
environment, the answers of functions about the process; nor what it looked for and did not find. Here every
place where that happens is watched, so that a build can carry each such thing as an input of the entry, or
stop.

Seen in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0. Where a place is gone, the build stops.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodWrapperType
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.aliasing import watch_sharing
from hatch_precompile.tracing.assumptions.attributes import watch_attributes
from hatch_precompile.tracing.assumptions.builtins import made_anew, watch_builtins
from hatch_precompile.tracing.assumptions.calls import watch_calls
from hatch_precompile.tracing.assumptions.comparisons import watch_comparisons
from hatch_precompile.tracing.assumptions.dict_orders import watch_orders
from hatch_precompile.tracing.assumptions.executed import watch_executed
from hatch_precompile.tracing.assumptions.external_values import watch_wrapped
from hatch_precompile.tracing.assumptions.keys import watch_keys, watching_items
from hatch_precompile.tracing.assumptions.lookups import watch_lookups
from hatch_precompile.tracing.assumptions.notes import (
    asked_environment,
    assumed,
    stop,
    where,
)
from hatch_precompile.tracing.assumptions.tensors import watch_tensors
from hatch_precompile.tracing.assumptions.unguarded import watch_found
from hatch_precompile.tracing.assumptions.values import watch_values

__all__ = ["watching_assumptions"]


@contextlib.contextmanager
def watching_assumptions() -> Iterator[None]:
    """For the length of the block, `assumed_in` knows what each trace took for constant."""
    with contextlib.ExitStack() as stack:

        def watch(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
            if not hasattr(owner, name):
                raise Unsupported(
                    f"torch {torch.__version__} has no {owner.__name__}.{name}, so that it is not known what "
                    "it takes for constant",
                    advice="Build with a version of torch that is supported.",
                )
            raw = inspect.getattr_static(owner, name)
            wrapped = _around(getattr(owner, name), name, wrapper)
            if name in vars(owner):
                stack.callback(setattr, owner, name, raw)
            else:  # one version of torch has a method where another inherits it
                stack.callback(delattr, owner, name)
            setattr(owner, name, staticmethod(wrapped) if isinstance(raw, staticmethod) else wrapped)

        watch_executed(watch)
        _watch_code(watch)
        watch_attributes(watch)
        watch_found(watch)
        watch_lookups(watch)
        watch_comparisons(watch)
        watch_sharing(watch)
        watch_orders(watch)
        watch_keys(watch)
        stack.enter_context(watching_items())
        watch_values(watch)
        watch_builtins(watch)
        watch_calls(watch)
        watch_wrapped(watch)
        watch_tensors(watch)
        made_anew()
        stack.callback(made_anew)
        yield


def _around(own: Callable[..., Any], name: str, wrapper: Any) -> Callable[..., Any]:
    """A function in another's place, which gets that one as `own`. It has one frame, of the other's name:
    torch's functions and those here look at who has called them."""
    code = wrapper.__code__.replace(co_name=name)
    made = FunctionType(code, wrapper.__globals__, None, wrapper.__defaults__, wrapper.__closure__)
    made.__kwdefaults__ = {"own": own}
    return functools.wraps(own)(made)


def _watch_code(watch: Callable[..., None]) -> None:
    from torch._dynamo import decorators, symbolic_convert
    from torch._dynamo.variables import functions, nn_module, user_defined
    from torch._dynamo.variables import torch as of_torch
    from torch._dynamo.variables.misc import ConstantLikeVariable

    inline = symbolic_convert.InliningInstructionTranslator
    watch(inline, "build_inline_tracer", _inlining)
    watch(inline, "get_globals_source_and_value", _standard_globals)
    watch(symbolic_convert.InstructionTranslatorBase, "load_builtin_from_argval", _builtin)
    watch(user_defined.UserDefinedClassVariable, "__init__", _class)
    if way("a named tuple that is made") == "by its fields":
        watch(user_defined.UserDefinedClassVariable, "call_function", _named_tuple)
    watch(user_defined.UserDefinedObjectVariable, "__init__", _instance)
    watch(ConstantLikeVariable, "__init__", _constant_like)
    watch(nn_module.UnspecializedNNModuleVariable, "call_function", _module_call)
    for module in (of_torch, functions):
        watch(module, "is_wrapper_or_member_descriptor", _descriptor)
    if hasattr(decorators, _PATCHED_EINOPS):  # torch 2.12 and later
        watch(decorators, _PATCHED_EINOPS, _patched_einops)


_PATCHED_EINOPS = "_patch_einops_symint_compat"


def _patched_einops(module: Any, *, own: Any) -> None:
    """Dynamo puts two functions of its own into einops, which no other process has: torch 2.12 into each
    version, newer ones into those before 0.7, which need them for dynamic sizes."""
    if tuple(map(int, sys.modules["einops"].__version__.split(".")[:2])) < (0, 7):
        own(module)
        stop("einops before 0.7, into which torch.compile puts functions of its own", "Require einops>=0.7.")


def _inlining(parent: Any, func: Any, args: Any, kwargs: Any, *, own: Any, **more: Any) -> Any:
    function = getattr(func, "fn", None)
    if isinstance(function, FunctionType):
        found = assumed()
        guarded = func.get_source() is not None
        found.functions[function] = found.functions.get(function, True) and guarded
        if function in vars(os._Environ).values():
            _environment(function, args)
    return own(parent, func, args, kwargs, **more)


def _environment(method: FunctionType, args: Any) -> None:
    try:
        asked_environment(method.__code__, args[1].as_python_constant() if len(args) > 1 else None)
    except NotImplementedError:
        stop("a variable of the environment whose name is not a constant", "Write its name in the code.")


def _descriptor(value: Any, *, own: Any) -> bool:
    """Dynamo puts no guard on a method of a class in C, as nothing changes it; but another one may stand in
    its place. Only bound ones, each time a new object, are still taken so."""
    return isinstance(value, MethodWrapperType) and bool(own(value))


def _standard_globals(self: Any, name: str, *, own: Any) -> Any:
    found = own(self, name)
    module = self.f_globals.get("__name__", "")
    if type(found[2]).__name__ == "SkipGuardSource":
        assumed().names.setdefault((module, name), where())
    return found


def _builtin(self: Any, argval: str, *, own: Any) -> Any:
    assumed().builtins.add((self.f_globals.get("__name__", ""), argval))
    return own(self, argval)


def _class(self: Any, value: Any, *, own: Any, **kwargs: Any) -> None:
    own(self, value, **kwargs)
    assumed().classes[value] = None


def _named_tuple(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    """Dynamo fills in the fields that are not given, without a guard on what they are."""
    from torch._dynamo.source import AttrSource, DictGetItemSource
    from torch._dynamo.variables.base import VariableTracker

    defaults = getattr(self.value, "_field_defaults", {}) if issubclass(self.value, tuple) else {}
    fields = getattr(self.value, "_fields", ())[len(args) :]
    for name in [name for name in fields if name in defaults and name not in kwargs]:
        if self.source is not None:
            source = DictGetItemSource(AttrSource(self.source, "_field_defaults"), name)
            kwargs = {**kwargs, name: VariableTracker.build(tx, defaults[name], source)}
    return own(self, tx, args, kwargs)


def _instance(self: Any, value: Any, *, own: Any, **kwargs: Any) -> None:
    from torch._dynamo.source import is_from_skip_guard_source

    own(self, value, **kwargs)
    found = assumed()
    found.classes[type(value)] = None
    made_here = self.mutation_type is not None  # an object of the trace's own, or a copy
    unguarded = self.source is None or is_from_skip_guard_source(self.source)
    if unguarded and not made_here:
        found.objects[id(value)] = value


def _constant_like(self: Any, value: Any, *, own: Any, **kwargs: Any) -> None:
    own(self, value, **kwargs)
    if self.source is None:
        assumed().objects[id(value)] = value


def _module_call(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    assumed().called[id(self.value)] = self.value
    return own(self, tx, args, kwargs)
