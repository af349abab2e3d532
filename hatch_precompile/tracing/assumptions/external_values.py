"""Guards what dynamo takes from outside of the trace without asking what it is, or not closely enough.

Dynamo's comments say of each that it is unlikely to change. In one process it is; but a function that is
called with another argument meets the entry of the first.

Seen in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hatch_precompile.static_lookup import dict_of, is_a
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.identities import is_nan
from hatch_precompile.tracing.assumptions.notes import assumed, has_guards, stop, value_of

__all__ = ["watch_wrapped"]


def watch_wrapped(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builder, functions, misc

    watch(builder.VariableBuilder, "_wrap", _wrapped)
    watch(builder, "SkipGuardSource", _guarded_source)
    if way("annotations of a function") == "without a guard":
        watch(functions, "SkipGuardSource", _guarded_source)
    watch(misc.RandomVariable, "call_method", _drawn)
    watch(misc.RandomClassVariable, "call_function", _generator)


def _guarded_source(base: Any, *, own: Any) -> Any:
    """Signatures and annotations are guarded as everything else is."""
    return base


def _drawn(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    """Dynamo draws while it traces, and its guard asks for the class."""
    if self.source is not None and name != "seed":
        stop(
            f"{name}() of a random.Random that was made elsewhere",
            "Call the functions of the module random, or give what they return.",
        )
    return own(self, tx, name, args, kwargs)


def _generator(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    if not args or args[0].is_constant_none():
        stop("random.Random() without a seed", "Give it one.")
    return own(self, tx, args, kwargs)


def _wrapped(self: Any, value: Any, *, own: Any) -> Any:
    from torch._dynamo.guards import install_guard

    source = self.source
    result = own(self, value)
    if has_guards(source):
        if is_nan(value):
            assumed().taken[source] = result
        install_guard(*_lacking(value, source, self.tx.output.root_tx))
    return result


_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType)


def _lacking(value: Any, source: Any, frame: Any) -> Iterator[Any]:
    """The guards that dynamo does not make of this value. frame: its translator of the outermost one"""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import AttrSource

    if is_a(value, torch.Tensor):
        if dict_of(value).get("_is_buffer"):  # to dynamo its class is another one
            yield AttrSource(source, "_is_buffer").make_guard(GuardBuilder.CONSTANT_MATCH)
    elif is_a(value, type):
        if not _is_own_class(source, frame):
            yield source.make_guard(GuardBuilder.CLASS_MATCH)
    elif type(value) is contextlib.nullcontext:
        if value.enter_result is None:
            yield AttrSource(source, "enter_result").make_guard(GuardBuilder.CONSTANT_MATCH)
    elif type(value) in _DESCRIPTORS and value_of(source, frame) is not value:
        return  # what the source gives is what the descriptor gives for an object
    elif type(value) in (types.GetSetDescriptorType, types.MemberDescriptorType):
        yield source.make_guard(GuardBuilder.TYPE_MATCH)
        yield AttrSource(source, "__name__").make_guard(GuardBuilder.CONSTANT_MATCH)
        yield AttrSource(source, "__objclass__").make_guard(GuardBuilder.CLASS_MATCH)
    elif type(value) is types.MethodWrapperType:
        yield source.make_guard(GuardBuilder.TYPE_MATCH)
        yield AttrSource(source, "__name__").make_guard(GuardBuilder.CONSTANT_MATCH)
        yield AttrSource(source, "__self__").make_guard(GuardBuilder.TYPE_MATCH)


def _is_own_class(source: Any, frame: Any) -> bool:
    """Whether it is the `__class__` that the compiler gives a method that says super()"""
    from torch._dynamo.source import CellContentsSource, ClosureSource, GetItemSource

    if type(source) is not CellContentsSource:
        return False
    cell: Any = source.base
    if type(cell) is not GetItemSource or type(cell.base) is not ClosureSource:
        return False
    function = value_of(cell.base.base, frame)
    return bool(function.__code__.co_freevars[cell.index] == "__class__")
