"""How a guard function walks from a value to the next: Python for each of dynamo's accessors."""

from __future__ import annotations

import math
from collections import OrderedDict
from types import FunctionType, MethodType
from typing import Any

from hatch_precompile.lower.guards.text import GuardText, unsupported
from hatch_precompile.torch_internals import pytree_registry
from hatch_precompile.torch_internals.guardtree import GuardNode

__all__ = ["access", "is_activated", "require_container"]

_FUNCTION_PARTS = {"closure": "__closure__", "func_defaults": "__defaults__"}
_FLATTENED = ".__tensor_flatten__()"
_FROM_NUMPY = "___from_numpy("
_DICTS_BY_NATURE = {"get_generic_dict", "globals_dict", "type_dict", "func_kwdefaults"}


def access(text: GuardText, node: GuardNode, base: str, frame_globals: dict[str, Any]) -> str:
    """The expression for a node's value, `base` being the variable that holds its parent's."""
    parent = node.parent
    assert parent is not None
    accessor, key = node.accessor, node.key
    if accessor == "framelocals":
        return f"L[{key[0]!r}]"
    if accessor == "globals_dict":
        if key is not frame_globals:
            raise unsupported("a guard on another module's globals", node)
        return "G"
    if accessor in ("getattr", "generic_getattr"):
        if accessor == "generic_getattr":
            return f"object.__getattribute__({base}, {key!r})"
        return f"{base}.{key}" if key.isidentifier() else f"getattr({base}, {key!r})"
    if accessor in ("get_generic_dict", "type_dict"):
        return f"{base}.__dict__"
    if accessor == "code":
        return f"plain_code({base}.__code__)"  # an activated function has other code in its place
    if accessor in _FUNCTION_PARTS or accessor == "func_kwdefaults":
        return f"{base}.{_FUNCTION_PARTS.get(accessor, '__kwdefaults__')}"
    if accessor == "type":
        return f"type({base})"
    if accessor == "type_mro":
        return f"{base}.__mro__"
    if accessor in ("dict_getitem", "list_getitem", "tuple_getitem", "getitem"):
        index = text.constant(key, None, node.source)
        if accessor == "dict_getitem" and _overrides_getitem(parent):
            return f"dict.__getitem__({base}, {index})"
        return f"{base}[{index}]"
    if accessor in ("get_key", "get_value") and parent.value is pytree_registry():
        # Modules add to it in the order they are imported in, which is not the same in every process.
        registered = text.constant(list(parent.value)[key], None, node.source)
        return registered if accessor == "get_key" else f"dict.__getitem__({base}, {registered})"
    if accessor == "get_key":
        return f"{base}_keys[{key}]"
    if accessor == "get_value":
        return f"dict.__getitem__({base}, {base}_keys[{key}])"
    if accessor == "set_getitem":
        if not all(type(item) in (bool, int, float, complex) for item in parent.value):
            raise unsupported("the order of a set with other elements than numbers", node)
        return f"list({base})[{key}]"
    if accessor in ("weakref_call", "call_function_no_args"):
        return f"{base}()"
    if accessor == "grad":
        return f"{base}.grad"
    if accessor == "tensor_property_size":
        return f"{base}.size({key})"
    if accessor == "tensor_property_storage_offset":
        return f"{base}.storage_offset()"
    if accessor == "lambda" and node.source.endswith(f"{_FLATTENED}[0]"):
        return f"{base}{_FLATTENED}[0]"  # the names of the tensors that a tensor subclass wraps
    if accessor == "lambda" and node.source.startswith(_FROM_NUMPY):
        return f"from_numpy({base})"
    if accessor == "lambda" and parent.parent is None and _is_module(node.value):
        return text.constant(node.value, None, node.source)  # an import inside the traced code
    raise unsupported(f"the guard accessor {accessor!r}", node)


def _overrides_getitem(node: GuardNode) -> bool:
    return (
        node.accessor not in _DICTS_BY_NATURE
        and isinstance(node.value, dict)
        and type(node.value).__getitem__ not in (dict.__getitem__, OrderedDict.__getitem__)
    )


def require_container(text: GuardText, node: GuardNode, variable: str) -> None:
    """Pin the type of what is walked into, as dynamo's typed C++ accessors do."""
    accessors = {child.accessor for child in node.children}
    if node.value is pytree_registry():
        text.require(f"type({variable}) is dict", "TYPE_MATCH")
    elif node.keyed or accessors & {"get_key", "get_value"}:
        if not isinstance(node.value, dict):
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
        and (parent.accessor in ("globals_dict", "type_dict") or isinstance(parent.value, (type, type(math))))
    )


def _is_module(value: Any) -> bool:
    return type(value) is type(math)
