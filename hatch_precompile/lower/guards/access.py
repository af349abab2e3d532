"""How a guard function walks from a value to the next: Python for each of dynamo's accessors."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from hatch_precompile.looking import has, is_a
from hatch_precompile.lower.guards.subclasses import names_of_wrapped
from hatch_precompile.lower.guards.text import GuardText, unsupported
from hatch_precompile.tracing import pytree_registry
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["access", "is_activated", "require_container"]

Write = Callable[[GuardText, GuardNode, str], str]


_FROM_NUMPY = "___from_numpy("
_FIELDS = "___dataclass_fields("  # of the class of a frozen one that is made in the trace: torch 2.11
_DICTS_BY_NATURE = {"get_generic_dict", "globals_dict", "type_dict", "func_kwdefaults"}


def access(text: GuardText, node: GuardNode, base: str, frame_globals: dict[str, Any]) -> str:
    """The expression for a node's value, `base` being the variable that holds its parent's.

    Raises Unsupported for an accessor that it does not know.
    """
    if node.accessor == "globals_dict":
        if node.key is not frame_globals:
            raise unsupported("a guard on another module's globals", node)
        return "G"
    write = _ACCESSORS.get(node.accessor)
    if write is None:
        raise unsupported(f"the guard accessor {node.accessor!r}", node)
    return write(text, node, base)


def _simple(template: str) -> Write:
    """`{base}`: the variable of the parent; `{key}`, `{key!r}`: what dynamo's accessor was given."""
    return lambda text, node, base: template.format(base=base, key=node.key)


def _attribute(text: GuardText, node: GuardNode, base: str) -> str:
    if node.key == "grad" and isinstance(_parent(node).value, torch.Tensor):
        return _gradient(text, node, base)
    return f"{base}.{node.key}" if node.key.isidentifier() else f"getattr({base}, {node.key!r})"


def _item(text: GuardText, node: GuardNode, base: str) -> str:
    return f"{base}[{text.constant(node.key, None, node.source)}]"


def _item_of_dict(text: GuardText, node: GuardNode, base: str) -> str:
    if not _has_own_getitem(_parent(node)):
        return _item(text, node, base)
    key = text.constant(node.key, None, node.source)
    # Even dict.__getitem__ would ask the class for what is missing.
    text.require(f"dict.__contains__({base}, {key})", "DICT_CONTAINS")
    return f"dict.get({base}, {key})"


def _key_by_place(text: GuardText, node: GuardNode, base: str) -> str:
    return _registered(text, node) or f"{base}_keys[{node.key}]"


def _value_by_place(text: GuardText, node: GuardNode, base: str) -> str:
    key = _registered(text, node) or f"{base}_keys[{node.key}]"
    return f"dict.__getitem__({base}, {key})"


def _registered(text: GuardText, node: GuardNode) -> str:
    """The key itself, for pytree's registry: modules add to it in the order they are imported in, which is
    not the same in every process."""
    mapping = _parent(node).value
    return text.constant(list(mapping)[node.key], None, node.source) if mapping is pytree_registry() else ""


def _item_of_set(text: GuardText, node: GuardNode, base: str) -> str:
    if not all(type(item) in (bool, int, float, complex) for item in _parent(node).value):
        raise unsupported("the order of a set with other elements than numbers", node)
    return f"list({base})[{node.key}]"


def _lambda(text: GuardText, node: GuardNode, base: str) -> str:
    if names := names_of_wrapped(node, base):
        return names
    if node.source.startswith(_FROM_NUMPY):
        _require_array(text, node, base)
        return f"from_numpy({base})"
    if node.source.startswith(_FIELDS) and has(_parent(node).value, "__dataclass_fields__"):
        return f"{text.constant(dataclasses.fields, None, node.source)}({base})"
    if _parent(node).parent is None and _is_module(node.value):
        return text.constant(node.value, None, node.source)  # an import inside the traced code
    raise unsupported(f"the guard accessor {node.accessor!r}", node)


def _require_array(text: GuardText, node: GuardNode, base: str) -> None:
    """Dynamo looks at the tensor that an array becomes. A subclass does other things, as does a tensor; an
    array that cannot be written to becomes a tensor that can, with a warning."""
    cls = type(_parent(node).value)
    numpy = sys.modules["numpy"]
    if cls is not numpy.ndarray and not (issubclass(cls, numpy.generic) and cls.__module__ == "numpy"):
        raise unsupported(f"an array of the class {cls.__qualname__}", node)
    text.require(f"type({base}) is {text.constant(cls, None, node.source)}", "TYPE_MATCH")
    if cls is numpy.ndarray:
        text.require(f"{base}.flags.writeable", "ARRAY_WRITEABLE")


def _gradient(text: GuardText, node: GuardNode, base: str) -> str:
    """To read that of a tensor which is no leaf gives a warning."""
    if not _parent(node).value.is_leaf:
        raise unsupported("the gradient of a tensor that is no leaf", node)
    text.require(f"{base}.is_leaf", "GRADIENT")
    return f"{base}.grad"


_ACCESSORS: dict[str, Write] = {
    "framelocals": lambda text, node, base: f"L[{node.key[0]!r}]",
    "getattr": _attribute,
    "generic_getattr": _simple("object.__getattribute__({base}, {key!r})"),
    "get_generic_dict": _simple("{base}.__dict__"),
    "type_dict": _simple("{base}.__dict__"),
    # An activated function has other code in its place.
    "code": _simple("plain_code({base}.__code__)"),
    "closure": _simple("{base}.__closure__"),
    "func_defaults": _simple("{base}.__defaults__"),
    "func_kwdefaults": _simple("{base}.__kwdefaults__"),
    "type": _simple("type({base})"),
    "type_mro": _simple("{base}.__mro__"),
    "getitem": _item,
    "list_getitem": _item,
    "tuple_getitem": _item,
    "dict_getitem": _item_of_dict,
    "set_getitem": _item_of_set,
    "get_key": _key_by_place,
    "get_value": _value_by_place,
    "weakref_call": _simple("{base}()"),
    "call_function_no_args": _simple("{base}()"),
    "grad": _gradient,
    "tensor_property_size": _simple("{base}.size({key})"),
    "tensor_property_storage_offset": _simple("{base}.storage_offset()"),
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


def require_container(text: GuardText, node: GuardNode, variable: str) -> None:
    """Pin the type of what is walked into, as dynamo's typed C++ accessors do."""
    accessors = {child.accessor for child in node.children}
    if node.value is pytree_registry():
        text.require(f"type({variable}) is dict", "TYPE_MATCH")
    elif node.keyed or accessors & {"get_key", "get_value"}:
        if not is_a(node.value, dict):
            raise unsupported(f"key order of a {type(node.value).__name__}", node)
        type_name = text.constant(type(node.value), None, node.source)
        text.require(f"type({variable}) is {type_name}", "DICT_ORDER")
        text.require(f"dict.__len__({variable}) == {len(node.value)}", "DICT_ORDER")
        text.add(f"{variable}_keys = list(dict.keys({variable}))")
    elif node.accessor in _DICTS_BY_NATURE:
        return
    elif accessors & {"dict_getitem", "list_getitem", "tuple_getitem"} or (
        any(leaf.kind in ("dict_contains_guard", "dict_length_check_guard") for leaf in node.leaves)
    ):
        type_name = text.constant(type(node.value), None, node.source)
        text.require(f"type({variable}) is {type_name}", "TYPE_MATCH")
    elif accessors & {"code", "closure", "func_defaults", "func_kwdefaults"}:
        if type(node.value) not in (FunctionType, MethodType):
            raise unsupported("a guard on the code of something not a function", node)
        type_name = text.constant(type(node.value), None, node.source)
        text.require(f"type({variable}) is {type_name}", "TYPE_MATCH")


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
