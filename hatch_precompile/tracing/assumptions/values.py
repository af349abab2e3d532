"""Watches what dynamo takes for constant and differs in each process: hashes, addresses, orders of sets."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from hatch_precompile.torch_versions import torch_name, way
from hatch_precompile.tracing.assumptions.notes import (
    assumed,
    constants,
    in_the_library,
    of_torch,
    stop,
    value_of,
)
from hatch_precompile.tracing.set_orders import has_few_orders

__all__ = ["WORDS", "called_from", "is_only_asked", "require_steady_hash", "watch_values"]


def watch_values(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builtin, constant, lists

    if way("hash()") == "call_hash":  # else it is watched in builtins.py
        watch(builtin.BuiltinVariable, "call_hash", _hash)
    watch(builtin.BuiltinVariable, "call_id", _id)
    watch(builtin.BuiltinVariable, "call_str", _str)
    watch(builtin.BuiltinVariable, "call_repr", _repr)
    watch(constant.ConstantVariable, "call_method", _constant_method)
    kinds = [torch_name(name) for name in ("set", "frozenset")]
    if way("elements of a dict") == "tp_iter_impl":
        sets = torch_name("what set and frozenset have in common")
        for kind in kinds:
            for name in ("tp_iter_impl", "unpack_var_sequence", "repr_impl", "tp_repr_impl"):
                if any(name in vars(base) for base in kind.__mro__ if issubclass(base, sets)):
                    watch(kind, name, _set_order)
    else:  # a set is a dict there
        watch(kinds[0], "unpack_var_sequence", _set_order)
        for kind in kinds:
            watch(kind, "debug_repr", _set_in_repr)
    # Each change of a set comes through here: it is known how it came about.
    watch(kinds[0], "call_method", _set_method)
    watch(builtin.BuiltinVariable, "call_set", _new_set)
    watch(kinds[0], "__init__", _displayed_set)
    for name in [name for name in vars(kinds[0]) if name.startswith("nb_inplace_")]:
        watch(kinds[0], name, _set_operator)
    for kind in kinds:
        watch(kind, "as_python_constant", _set_in_words)
    watch(builtin.BuiltinVariable, "call_function", _format)
    watch(torch_name("the class dict"), "call_custom_dict_fromkeys", _keys_of_set)
    watch(lists.ListVariable, "call_method", _list_method)
    if way("extend() and += of a list") == "list_extend":
        watch(lists.BaseListVariable, "list_extend", _list_extended)


_ORDER = "the order of a set of other elements than numbers"
_SORT = "Sort what decides it: sorted(...) of a set, a tuple or dict in its place."


def _steady(value: Any) -> bool:
    """Whether every process gives the value the same hash."""
    if type(value) in (tuple, frozenset):
        return all(map(_steady, value))
    return type(value) in (bool, int, float, complex)


def _hash(self: Any, tx: Any, arg: Any, *, own: Any) -> Any:
    require_steady_hash(tx, arg)
    return own(self, tx, arg)


def require_steady_hash(tx: Any, variable: Any) -> None:
    """Stop where the hash of a value is asked for that other processes hash otherwise."""
    # Below a `__hash__` of the program's own the result only finds a key in a dict.
    if tx.f_code.co_name != "__hash__" and not _is_steady(variable):
        stop("hash() of a value that every process hashes otherwise", "Use hashlib or zlib.crc32.")


def _is_steady(variable: Any) -> bool:
    try:
        return _steady(variable.as_python_constant())
    except NotImplementedError:
        return False


def _id(self: Any, tx: Any, *args: Any, own: Any) -> Any:
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.variables import constant

    # Torch 2.11 has none of its own, and takes addresses.
    made_up = constant.FakeIdVariable if way("id()") == "numbers of its own" else None

    if tx.f_code.co_filename == copy.__file__:
        # A key of the memo of copy.deepcopy, which tells copied objects apart. One of dynamo's made-up
        # ids is just that: it gets neither into the graph nor into the bytecode.
        source = args[0].source
        if source is not None:
            value = value_of(source, tx.output.root_tx)
            real = id(value) if made_up is None else args[0].get_id(tx)
            if type(value) not in _ATOMIC and real is not None:
                install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))
                assumed().copied[source.name] = real
            if real is not None:
                return (made_up or constant.ConstantVariable)(real)
    result = own(self, tx, *args)
    its_own = made_up is not None and isinstance(result, made_up)
    if not its_own and not in_the_library(tx.f_code.co_filename):
        stop("id() of an object, which is its address in one process", "Compare objects with `is`.")
    return result


# A copy of these is the object itself.
_ATOMIC = {
    *(int, float, complex, bool, str, bytes, type(None), type, range, torch.dtype, torch.device),
    *(FunctionType, BuiltinFunctionType, type(Ellipsis)),
}


def _str(self: Any, tx: Any, arg: Any, *, own: Any) -> Any:
    """Without a `__str__` of its own an object's text is its `__repr__`'s: dynamo runs that on the object,
    and guards on nothing that it reads. `repr()` it traces."""
    from torch._dynamo.variables import builtin, functions, user_defined

    arg = arg.realize()
    if isinstance(arg, functions.UserFunctionVariable):
        _stop_at_address()
    if isinstance(arg, user_defined.UserDefinedObjectVariable) and _is_objects_own(arg, "__str__"):
        return builtin.BuiltinVariable(repr).call_function(tx, [arg], {})
    return own(self, tx, arg)


def _repr(self: Any, tx: Any, arg: Any, *, own: Any) -> Any:
    from torch._dynamo.variables import functions, user_defined

    found = arg.realize()
    if isinstance(found, functions.UserFunctionVariable) or (
        isinstance(found, user_defined.UserDefinedObjectVariable) and _is_objects_own(found, "__repr__")
    ):
        _stop_at_address()
    return own(self, tx, arg)


def _is_objects_own(variable: Any, method: str) -> bool:
    found: Any = getattr(type(variable.value), method)
    return found is getattr(object, method)


def _stop_at_address() -> None:
    stop(
        "str() or repr() of something that says its address in one process",
        "Use a name, or give its class a __repr__.",
    )


def _constant_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    if name == "__hash__" and not _is_steady(self):
        stop("hash() of a value that every process hashes otherwise", "Use hashlib or zlib.crc32.")
    if name in ("format_map", "join", "__mod__") and _has_sets([*args, *kwargs.values()]):
        stop(_ORDER, _SORT)
    return own(self, tx, name, args, kwargs)


# What asks for the elements of a set in its order, and gives the same for every order.
_ORDERLESS = {
    *("call_sorted", "call_set", "call_frozenset", "_call_min_max", "set_copy", "_fast_set_method"),
    *("set_update", "set_union", "set_intersection", "set_difference", "set_symmetric_difference"),
    *("set_isdisjoint", "set_intersection_update", "set_difference_update", "set_issubset", "set_issuperset"),
    *("set_symmetric_difference_update", "impl_sorted"),
}


def _is_set(variable: Any) -> bool:
    return isinstance(variable, (torch_name("set"), torch_name("frozenset")))


def _hashed_otherwise(variable: Any) -> bool:
    """Whether the elements of a set have other hashes, and so another order, in another process."""
    elements = [getattr(key, "vt", key) for key in variable.items]
    return len(elements) > 1 and not all(map(_is_steady, elements))


def _ordered_otherwise(variable: Any) -> bool:
    """Whether dynamo goes through a set in another order in another process.

    Its own sets are as ordered as dicts: one that the traced code makes of a list, or empty and adds to, is
    the same wherever it is traced.
    """
    return id(variable) not in assumed().inserted and _hashed_otherwise(variable)


def _set_order(self: Any, tx: Any, *args: Any, own: Any) -> Any:
    differs = _hashed_otherwise if "repr" in own.__name__ else _ordered_otherwise
    if _is_set(self) and differs(self) and not (_orderless(tx) or _see_order(self, tx)):
        stop(_ORDER, _SORT)
    return own(self, tx, *args)


def _see_order(variable: Any, tx: Any) -> bool:
    """Have guards ask for the order of a set that the program has, where it has few."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import NonSerializableSetGetItemSource

    if variable.source is None:
        return False
    value = value_of(variable.source, tx.output.root_tx)
    if not has_few_orders(value):
        return False
    known = constants([getattr(key, "vt", key) for key in variable.items], {})
    if known is None or known[0] != tuple(value):  # the traced code has changed it
        return False
    for place in range(len(value)):
        item = NonSerializableSetGetItemSource(variable.source, place)
        install_guard(item.make_guard(GuardBuilder.CONSTANT_MATCH))
    return True


def _set_in_repr(self: Any, *, own: Any) -> Any:
    if called_from("call_repr") and _hashed_otherwise(self):
        stop(_ORDER, _SORT)
    return own(self)


def called_from(*names: str) -> Any:
    """The frame of one of dynamo's functions by these names, where it is among those that called; or None."""
    frame: Any = sys._getframe(2)
    for _ in range(10):
        if frame is None or frame.f_code.co_name in names:
            return frame
        frame = frame.f_back
    return None


_OF_CONTAINERS = ("as_python_constant", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


def is_only_asked() -> bool:
    """Whether dynamo calls an `as_python_constant` only to know whether it can."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name in _OF_CONTAINERS:
        frame = frame.f_back
    return bool(frame.f_code.co_name == "is_python_constant")


def _list_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    # list(...) and [*...] of a set come here, too.
    if name == "extend" and args:
        _see_order_of_set(args[0], tx)
    return own(self, tx, name, args, kwargs)


def _list_extended(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    for each in args:
        _see_order_of_set(each.realize(), tx)
    return own(self, tx, args, kwargs)


def _see_order_of_set(variable: Any, tx: Any) -> None:
    """Where it is a set."""
    if _is_set(variable) and _ordered_otherwise(variable) and not _see_order(variable, tx):
        stop(_ORDER, _SORT)


def _has_sets(variables: Any) -> bool:
    """Whether there is a set whose words differ between processes, also in a list, a tuple or a dict."""
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.lists import BaseListVariable

    for variable in variables:
        realized = variable.realize()
        if _is_set(realized):
            if _hashed_otherwise(realized):
                return True
        elif isinstance(realized, ConstDictVariable):
            if _has_sets(realized.items.values()):
                return True
        elif isinstance(realized, BaseListVariable) and _has_sets(realized.items):
            return True
    return False


def _format(self: Any, tx: Any, args: Any, kwargs: Any, *, own: Any) -> Any:
    from torch._dynamo.variables.misc import StringFormatVariable

    if self.fn is str.format and _has_sets([*args, *kwargs.values()]):
        # Most such text is for an error that is not raised: it is put together where it is asked for,
        # after the graph, and what dynamo would have to know of it now, it says it does not.
        return StringFormatVariable(args[0].as_python_constant(), list(args[1:]), dict(kwargs))
    return own(self, tx, args, kwargs)


def _keys_of_set(tx: Any, kind: type, /, *args: Any, own: Any, **kwargs: Any) -> Any:
    if args:
        _see_order_of_set(args[0].realize(), tx)
    return own(tx, kind, *args, **kwargs)


def _set_in_words(self: Any, *, own: Any) -> Any:
    frame = called_from("constant_fold_handler")
    if frame is not None:
        called = frame.f_locals.get("fn")
        ordered = called in WORDS or (called in (min, max, sorted) and _has_key(frame.f_locals))
        if ordered and _hashed_otherwise(self):
            stop(_ORDER, _SORT)
    return own(self)


WORDS = (str, repr, ascii, format, str.format, operator.mod)
"""Functions that make words of a value."""


def _orderless(tx: Any) -> bool:
    """Whether what asks for the order is sorted(), an operation on sets, or dynamo's code for one."""
    asks = tx
    while asks.f_code.co_name == "iter_" and of_torch(asks.f_code.co_filename):  # traced in torch before 2.13
        asks = asks.parent
    if asks.f_code.co_name in _ORDERLESS and of_torch(asks.f_code.co_filename):
        return True
    frame: Any = sys._getframe(2)
    for _ in range(12):
        if frame is None or frame.f_code.co_name in ("step", "inline_call_"):
            return False
        if frame.f_code.co_name in _ORDERLESS:
            return not _has_key(frame.f_locals)
        frame = frame.f_back
    return False


def _has_key(frame_locals: dict[str, Any]) -> bool:
    """Whether sorted(), min() or max() has a `key`: among equal ones the first is the first in the order."""
    key = frame_locals.get("key") or frame_locals.get("kwargs", {}).get("key")
    return key is not None and not key.is_constant_none()


def _set_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    if name == "pop" and _hashed_otherwise(self):
        stop("pop() of a set of other elements than numbers", _SORT)
    if name in _CHANGING and not (name == "update" and all(map(_is_ordered, args))):
        assumed().inserted.pop(id(self), None)
    return own(self, tx, name, args, kwargs)


# What changes a set otherwise than by adding or removing one element.
_CHANGING = {
    *("__init__", "update", "intersection_update", "difference_update", "symmetric_difference_update"),
    *("__ior__", "__iand__", "__isub__", "__ixor__"),
}


def _is_ordered(variable: Any) -> bool:
    from torch._dynamo.variables.dicts import DictViewVariable
    from torch._dynamo.variables.lists import ListVariable, TupleVariable

    ordered = (ListVariable, TupleVariable, DictViewVariable)
    return isinstance(variable, ordered) or id(variable) in assumed().inserted


def _new_set(self: Any, tx: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    made = own(self, tx, *args, **kwargs)
    if all(map(_is_ordered, args)) and not kwargs:
        assumed().inserted[id(made)] = made
    return made


def _displayed_set(self: Any, *args: Any, own: Any, **kwargs: Any) -> None:
    """`{a, b}` has its elements in this order, and what a comprehension makes those that it adds."""
    own(self, *args, **kwargs)
    if sys._getframe(1).f_code.co_name == "BUILD_SET":  # the instruction
        assumed().inserted[id(self)] = self


def _set_operator(self: Any, tx: Any, other: Any, *, own: Any) -> Any:
    if not _is_ordered(other):
        assumed().inserted.pop(id(self), None)
    return own(self, tx, other)
