"""How a guard function walks from a value to the next: an expression for each of dynamo's accessors."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from hatch_precompile.lower.guards.builder import GuardText, type_of, unsupported
from hatch_precompile.lower.guards.checks import Assign
from hatch_precompile.lower.guards.expressions import Constant, Expression, Name, Variable, literal
from hatch_precompile.lower.guards.subclasses import names_of_wrapped
from hatch_precompile.static_lookup import has, is_a
from hatch_precompile.tracing import pytree_registry
from hatch_precompile.tracing.guardtree import GuardNode
from hatch_precompile.tracing.set_orders import has_few_orders

__all__ = ["access", "is_activated", "require_container"]

# Of the value in a variable.
Write = Callable[[GuardText, GuardNode, Variable | Constant], Expression]


_FROM_NUMPY = "___from_numpy("
_FIELDS = "___dataclass_fields("  # of the class of a frozen one that is made in the trace: torch 2.11
_DICTS_BY_NATURE = {"get_generic_dict", "globals_dict", "type_dict", "func_kwdefaults"}


def access(
    text: GuardText, node: GuardNode, base: Variable | Constant | None, frame_globals: dict[str, Any]
) -> Expression:
    """The expression for a node's value. base: the variable that holds its parent's; the root has none.

    Raises Unsupported for an accessor that it does not know.
    """
    if node.accessor == "globals_dict":
        if node.key is not frame_globals:
            raise unsupported("a guard on another module's globals", node)
        return Name("G")
    if node.accessor == "framelocals":
        return Name("L").item(literal(node.key[0]))
    write = _ACCESSORS.get(node.accessor)
    if write is None:
        raise unsupported(f"the guard accessor {node.accessor!r}", node)
    if base is None:
        return _of_root(text, node)
    return write(text, node, base)


def _of_root(text: GuardText, node: GuardNode) -> Expression:
    if node.accessor == "lambda" and _is_module(node.value):
        return text.constant(node.value, None, node.source)  # an import inside the traced code
    raise unsupported(f"the guard accessor {node.accessor!r}", node)


def _own(name: str) -> Write:
    """An attribute that every value of the kind has."""
    return lambda text, node, base: base.attribute(name)


def _called(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    return base.call()


def _attribute(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    if node.key == "grad" and isinstance(_parent(node).value, torch.Tensor):
        return _gradient(text, node, base)
    if node.key.isidentifier():
        return base.attribute(node.key)
    return Name("getattr").call(base, literal(node.key))


def _item(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    return base.item(text.constant(node.key, None, node.source))


def _item_of_dict(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    if not _has_own_getitem(_parent(node)):
        return _item(text, node, base)
    key = text.constant(node.key, None, node.source)
    # For a missing key even dict.__getitem__ calls the class's __missing__.
    text.require(Name("dict.__contains__").call(base, key), "DICT_CONTAINS")
    return Name("dict.get").call(base, key)


def _key_by_place(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    """Pytree's registry is asked for the key itself: modules add to it in the order they are imported in,
    which is not the same in every process."""
    mapping = _parent(node).value
    if mapping is pytree_registry():
        return text.constant(list(mapping)[node.key], None, node.source)
    return keys_of(base, _parent(node)).item(literal(node.key))


def _value_by_place(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    return Name("dict.__getitem__").call(base, _key_by_place(text, node, base))


def keys_of(mapping: Variable | Constant, node: GuardNode) -> Variable:
    """The variable with a list of a dict's keys."""
    if isinstance(mapping, Constant):
        raise unsupported("a guard on the order of the keys of a dict that dynamo itself has put there", node)
    return Variable(mapping.number, "_keys")


def _item_of_set(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    value = _parent(node).value
    if not has_few_orders(value) and not all(type(item) in (bool, int, float, complex) for item in value):
        raise unsupported("the order of a set with other elements than numbers", node)
    return Name("list").call(base).item(literal(node.key))


def _lambda(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    if names := names_of_wrapped(node, base):
        return names
    if node.source.startswith(_FROM_NUMPY):
        _require_array(text, node, base)
        return Name("from_numpy").call(base)
    if node.source.startswith(_FIELDS) and has(_parent(node).value, "__dataclass_fields__"):
        return text.constant(dataclasses.fields, None, node.source).call(base)
    raise unsupported(f"the guard accessor {node.accessor!r}", node)


def _require_array(text: GuardText, node: GuardNode, base: Variable | Constant) -> None:
    """Dynamo guards the tensor that an array becomes. So check the class, because a subclass or a tensor acts
    otherwise, and that the array is writable: one that is not becomes a tensor that is, with a warning."""
    cls = type(_parent(node).value)
    numpy = sys.modules["numpy"]
    if cls is not numpy.ndarray and not (issubclass(cls, numpy.generic) and cls.__module__ == "numpy"):
        raise unsupported(f"an array of the class {cls.__qualname__}", node)
    text.require(type_of(base).is_(text.constant(cls, None, node.source)), "TYPE_MATCH")
    if cls is numpy.ndarray:
        text.require(base.attribute("flags").attribute("writeable"), "ARRAY_WRITEABLE")


def _gradient(text: GuardText, node: GuardNode, base: Variable | Constant) -> Expression:
    """Reading `grad` of a tensor that is no leaf gives a warning, so it has to be a leaf."""
    if not _parent(node).value.is_leaf:
        raise unsupported("the gradient of a tensor that is no leaf", node)
    text.require(base.attribute("is_leaf"), "GRADIENT")
    return base.attribute("grad")


_ACCESSORS: dict[str, Write] = {
    "getattr": _attribute,
    "generic_getattr": lambda text, node, base: (
        Name("object").attribute("__getattribute__").call(base, literal(node.key))
    ),
    "get_generic_dict": _own("__dict__"),
    "type_dict": _own("__dict__"),
    # An activated function has other code in its place.
    "code": lambda text, node, base: Name("plain_code").call(base.attribute("__code__")),
    "closure": _own("__closure__"),
    "func_defaults": _own("__defaults__"),
    "func_kwdefaults": _own("__kwdefaults__"),
    "type": lambda text, node, base: type_of(base),
    "type_mro": _own("__mro__"),
    "getitem": _item,
    "list_getitem": _item,
    "tuple_getitem": _item,
    "dict_getitem": _item_of_dict,
    "set_getitem": _item_of_set,
    "get_key": _key_by_place,
    "get_value": _value_by_place,
    "weakref_call": _called,
    "call_function_no_args": _called,
    "grad": _gradient,
    "tensor_property_size": lambda text, node, base: base.attribute("size").call(literal(node.key)),
    "tensor_property_storage_offset": lambda text, node, base: base.attribute("storage_offset").call(),
    "lambda": _lambda,
}


def _parent(node: GuardNode) -> GuardNode:
    assert node.parent is not None
    return node.parent


def _has_own_getitem(node: GuardNode) -> bool:
    """Whether looking up an item may run Python code: that of a subclass, or what a defaultdict calls for one
    that it lacks, and puts into it."""
    return (
        node.accessor not in _DICTS_BY_NATURE
        and is_a(node.value, dict)
        and type(node.value) not in (dict, OrderedDict)
    )


def require_container(text: GuardText, node: GuardNode, variable: Variable | Constant) -> None:
    """Pin the type of what is walked into, as dynamo's typed C++ accessors do."""
    accessors = {child.accessor for child in node.children}
    kind, value = type_of(variable), node.value
    if value is pytree_registry():
        text.require(kind.is_(Name("dict")), "TYPE_MATCH")
    elif node.keyed or accessors & {"get_key", "get_value"}:
        if not is_a(value, dict):
            raise unsupported(f"key order of a {type(value).__name__}", node)
        text.require(kind.is_(text.constant(type(value), None, node.source)), "DICT_ORDER")
        text.require(Name("dict.__len__").call(variable).equals(literal(len(value))), "DICT_ORDER")
        keys = Name("list").call(Name("dict.keys").call(variable))
        text.add(Assign(keys_of(variable, node), keys))
    elif node.accessor in _DICTS_BY_NATURE:
        return
    elif accessors & {"dict_getitem", "list_getitem", "tuple_getitem"} or (
        any(leaf.kind in ("dict_contains_guard", "dict_length_check_guard") for leaf in node.leaves)
    ):
        text.require(kind.is_(text.constant(type(value), None, node.source)), "TYPE_MATCH")
    elif accessors & {"code", "closure", "func_defaults", "func_kwdefaults"}:
        if type(value) not in (FunctionType, MethodType):
            raise unsupported("a guard on the code of something not a function", node)
        text.require(kind.is_(text.constant(type(value), None, node.source)), "TYPE_MATCH")


def is_activated(node: GuardNode) -> bool:
    """A function reached by name from a module or a class: where an entrypoint's wrapper may stand."""
    parent = node.parent
    return (
        type(node.value) is FunctionType
        and parent is not None
        and (parent.accessor in ("globals_dict", "type_dict") or is_a(parent.value, type, type(math)))
    )


def _is_module(value: Any) -> bool:
    return type(value) is type(math)
