"""What guard functions ask at each call of what dynamo's guards leave out, and what may change meanwhile."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from types import FunctionType, MethodType
from typing import Any

from ..values.references import fingerprint
from ..values.static_lookup import dict_of, is_a
from .fingerprints import of_value, type_name

__all__ = ["CALL_CHECKS", "HOOKS", "hooks_of", "methods_at_load"]

HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"),
)
"""The attributes of a torch.nn.Module that hold the hooks its call runs."""


def hooks_of(*modules: tuple[Any, bool]) -> tuple[Any, ...]:
    """The hooks that a call of these modules, or of any below them, runs.

    Each is (number of module, which attribute, fingerprint). modules: each with whether it is the frame's
    own, whose hooks its caller has run already. Where somebody has put another method into the class of all
    modules, that method is a hook on them, too.
    """
    own, call, call_impl, getattribute, handle = methods_at_load()
    if (
        own["__call__"] is not call
        or own["_call_impl"] is not call_impl
        or own["__getattr__"] is not getattribute
    ):
        return ((-1, "torch.nn.Module", "another method"),)
    # Torch numbers hooks as they are registered: where it never did, only a module that was unpickled has
    # any, which is looked for once.
    none_yet = handle.next_id == 0
    if none_yet:
        for top, is_own in modules:
            known = _without_hooks.get((id(top), is_own))
            if known is None or known() is not top:
                break
        else:
            return ()
    every = sys.modules["torch.nn.modules.module"].__dict__
    found = [(-1, name, _hook(hook)) for name in HOOKS[:4] for hook in every[f"_global{name}"].values()]
    below = [(top, own, module) for top, own in modules for module in top.modules()]
    for number, (top, own, module) in enumerate(below):
        if own and module is top:
            continue
        for name in HOOKS:
            hooks = module.__dict__.get(name)
            if hooks:
                found += [(number, name, _hook(hook)) for hook in hooks.values()]
    if none_yet and not found:
        for top, own in modules:
            key = id(top), own
            _without_hooks[key] = weakref.ref(top, functools.partial(_without_hooks.pop, key))
    return tuple(found)


_without_hooks: dict[tuple[int, bool], weakref.ref[Any]] = {}


@functools.cache
def methods_at_load() -> tuple[Any, ...]:
    """The dict of torch.nn.Module, the three methods that each call of a module goes through, as they were
    when the first entry was loaded, and the class that numbers hooks. Dynamo does not trace these methods
    where there are no hooks."""
    own = sys.modules["torch.nn.modules.module"].Module.__dict__
    handle = sys.modules["torch.utils.hooks"].RemovableHandle
    return own, own["__call__"], own["_call_impl"], own["__getattr__"], handle


def _hook(hook: Any) -> Any:
    if type(hook) is FunctionType:
        return fingerprint(hook)
    if is_a(hook, MethodType):
        return ("method", _hook(hook.__func__), type_name(type(hook.__self__)))
    if is_a(hook, functools.partial):
        return (*of_value(hook), _hook(hook.func))
    if type(hook) is bool:  # of those that get keywords, that they do
        return repr(hook)
    return (type_name(type(hook)), *((name, of_value(value)) for name, value in dict_of(hook).items()))


def class_lacks(cls: type, count: int, names: tuple[str, ...]) -> bool:
    """Whether the first `count` classes that a class finds names in, itself the first, have none of these."""
    return all(base.__dict__.keys().isdisjoint(names) for base in cls.__mro__[:count])


def class_has(cls: type, names: frozenset[str], expected: tuple[str, ...]) -> bool:
    """Whether a class itself has, of `names`, those that are expected, and no others."""
    return cls.__dict__.keys() & names == set(expected)


CALL_CHECKS = {
    "environment": os.environ.get,
    "module_hooks": hooks_of,
    "class_lacks": class_lacks,
    "class_has": class_has,
}
"""What guard functions call for dependencies that may change between two calls."""

WHOLE = True
