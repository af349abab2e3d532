"""Notes the dicts whose order a trace has seen: that of a call's keywords is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hatch_precompile.torch_versions import torch_name, way
from hatch_precompile.tracing.assumptions.notes import assumed, constants, elements
from hatch_precompile.tracing.assumptions.values import WORDS, called_from, is_only_asked

__all__ = ["watch_orders"]


def watch_orders(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import dicts, lists, user_defined

    watch(dicts.ConstDictVariable, "call_method", _keys_asked_for)
    watch(lists.ListVariable, "call_method", _keys_added)
    if way("extend() and += of a list") == "list_extend":
        watch(lists.BaseListVariable, "list_extend", _keys_extending)
    sets = torch_name("what set and frozenset have in common")
    if hasattr(sets, "_operand_keys"):  # since 2.14
        watch(sets, "_operand_keys", _keys_of_operand)
    if way("elements of a dict") == "tp_iter_impl":
        for name in ("tp_iter_impl", *_REPR):
            if name in vars(dicts.ConstDictVariable):
                watch(dicts.ConstDictVariable, name, _keys_seen)
        # A dict's kin, such as OrderedDict, which go through its items by themselves.
        kin = {user_defined.UserDefinedDictVariable, *_kin(user_defined.UserDefinedDictVariable)}
        for kind in kin | set(_kin(dicts.ConstDictVariable)):
            for name in set(_REPR) & set(vars(kind)):
                watch(kind, name, _keys_seen_below)
            if "nb_or_impl" in vars(kind):
                watch(kind, "nb_or_impl", _keys_joined)
    else:
        watch(dicts.ConstDictVariable, "debug_repr", _keys_in_repr)
    watch(dicts.ConstDictVariable, "unpack_var_sequence", _keys_seen)
    watch(dicts.ConstDictVariable, "as_python_constant", _keys_taken)
    watch(dicts.ConstDictVariable, "reconstruct", _keys_given_out)


def _keys_extending(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    for each in args:
        _see_keys_below(each)
    return own(self, tx, args, kwargs)


# What torch 2.13 and later have for repr()
_REPR = ("repr_impl", "tp_repr_impl")


def _kin(kind: type[Any]) -> Iterator[type[Any]]:
    """All classes that are derived from one."""
    for derived in kind.__subclasses__():
        yield derived
        yield from _kin(derived)


_SHOWING_ORDER = {"items", "keys", "values", "popitem", "__reversed__", "__iter__", "__repr__", "__str__"}


def _see_keys(variable: Any) -> None:
    """Whoever goes through a dict sees its order. That of a call's keywords goes on, from one `**` to the
    next, into dicts of the trace's own, so that these are known by their keys."""
    if isinstance(variable, torch_name("set")):  # which torch 2.11 has as dicts
        return
    names, _ = constants([key.vt for key in variable.items], {}) or ((), {})
    assumed().orders_seen.add(names)
    variable.install_dict_keys_match_guard()


def _keys_asked_for(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    if name in _SHOWING_ORDER:
        _see_keys(self)
    if name == "__or__":  # in torch 2.11
        for each in (self, *args):
            _see_keys_below(each)
    return own(self, tx, name, args, kwargs)


def _keys_seen(self: Any, tx: Any, *, own: Any) -> Any:
    _see_keys(self)
    return own(self, tx)


def _see_keys_below(variable: Any) -> None:
    from torch._dynamo.variables.dicts import ConstDictVariable

    realized = variable.realize()
    inner = elements(realized)
    below = realized if inner is None else inner
    if isinstance(below, ConstDictVariable):
        _see_keys(below)


def _keys_seen_below(self: Any, tx: Any, *, own: Any) -> Any:
    _see_keys_below(self)
    return own(self, tx)


def _keys_joined(self: Any, tx: Any, other: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    for each in (self, other):
        _see_keys_below(each)
    return own(self, tx, other, *args, **kwargs)


def _keys_in_repr(self: Any, *, own: Any) -> Any:
    if called_from("call_repr"):
        _see_keys(self)
    return own(self)


def _keys_added(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    """`[*d]`, a call's `*d` and `extend` come here, each with the dict itself."""
    if name == "extend" and args:
        _see_keys_below(args[0])
    return own(self, tx, name, args, kwargs)


def _keys_of_operand(self: Any, tx: Any, operand: Any, *, own: Any) -> Any:
    """Those of a dict that is given to a method of a set"""
    _see_keys_below(operand)
    return own(self, tx, operand)


def _keys_taken(self: Any, *, own: Any) -> Any:
    frame = called_from("constant_fold_handler", "call_format")
    if frame is not None and (frame.f_code.co_name == "call_format" or frame.f_locals.get("fn") in WORDS):
        _see_keys(self)
    elif not isinstance(self, torch_name("set")) and not is_only_asked():
        self.install_dict_keys_match_guard()
    return own(self)


def _keys_given_out(self: Any, codegen: Any, *, own: Any) -> Any:
    _see_keys(self)
    return own(self, codegen)
