"""Watches builtin functions that dynamo makes a handler for, by the types of what they are given: `is`,
`[]` and in torch 2.11 `hash`."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

from hatch_precompile.static_lookup import is_a
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.identities import apart, one
from hatch_precompile.tracing.assumptions.notes import assumed, of_torch
from hatch_precompile.tracing.assumptions.values import require_steady_hash

__all__ = ["made_anew", "watch_builtins"]


def watch_builtins(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables.builtin import BuiltinVariable

    watched: dict[Any, Callable[..., None]] = {
        operator.is_: _compared,
        operator.is_not: _compared,
    }
    if way("hash()") == "a handler":
        watched[hash] = _hashed
    watch(BuiltinVariable, "_make_handler", _making(watched))


def made_anew() -> None:
    """Have dynamo make its handlers of builtin functions anew: they keep the methods that were there then."""
    from torch._dynamo.variables.builtin import BuiltinVariable

    if way("handlers of builtin functions") == "kept":
        BuiltinVariable.call_function_handler_cache.clear()
    BuiltinVariable._binop_handlers.cache_clear()


def _making(watched: dict[Any, Callable[..., None]]) -> Callable[..., Any]:
    def make_handler(fn: Any, arg_types: Any, has_kwargs: bool, *, own: Any) -> Any:
        handler = own(fn, arg_types, has_kwargs)
        look = watched.get(fn)
        if look is None and fn is not operator.getitem:
            return handler

        def handle(tx: Any, args: Any, kwargs: Any) -> Any:
            if look is None and len(args) == 2:
                _member_asked_for(*args)
            result = handler(tx, args, kwargs)
            if look is not None:
                look(fn, tx, args, result)
            return result

        return handle

    return make_handler


def _hashed(fn: Any, tx: Any, args: Any, result: Any) -> None:
    if args and result is not None and result.is_python_constant():
        require_steady_hash(tx, args[0])


def _member_asked_for(owner: Any, name: Any) -> None:
    """`Color["RED"]`, which dynamo computes: whether the class has one of the name is asked of the class."""
    if is_a(vars(owner.realize()).get("value"), enum.EnumMeta) and name.is_python_constant():
        asked = name.as_python_constant()
        if isinstance(asked, str):
            assumed().attributes.add(asked)


def _compared(fn: Any, tx: Any, args: Any, result: Any) -> None:
    """`a is b`, and `a is not b`"""
    from torch._dynamo.variables import ConstantVariable

    # `a is b or a == b` in torch's code: for equal numbers or texts it does not matter whether they are one.
    only_first = of_torch(tx.f_code.co_filename) and any(type(each) is ConstantVariable for each in args)
    if len(args) == 2 and result is not None and result.is_python_constant() and not only_first:
        same = result.as_python_constant() == (fn is operator.is_)
        (one if same else apart)(*args)
