"""One line of a guard function for each kind of check that dynamo puts on a value."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch

from hatch_precompile.lower.guards.builder import GuardText, type_of, unsupported, user_line
from hatch_precompile.lower.guards.expressions import (
    AnyOf,
    Constant,
    Name,
    Negation,
    Variable,
    all_of,
    display,
    lacks,
    literal,
)
from hatch_precompile.lower.guards.subclasses import CHECKED, require_metadata
from hatch_precompile.lower.names import is_plain
from hatch_precompile.lower.parametrized import made_for_one_object
from hatch_precompile.runtime import call_checks
from hatch_precompile.static_lookup import is_a, module_of, qualname_of
from hatch_precompile.tracing import pytree_registry
from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["require_leaf"]

Write = Callable[[GuardText, GuardNode, Leaf, Variable | Constant], None]

_MARKS = (
    "_dynamo_dynamic_indices",
    "_dynamo_weak_dynamic_indices",
    "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
    "_dynamo_static_indices",
    "_dynamo_shape_ids",
    "_dynamo_unbacked_bounds",
    "_dynamo_dynamic_range",
)
_BASES = (int, float, str)
_FIX_THE_CLASS = {
    *("type_match_guard", "tensor_match_guard", "equals_match_guard"),
    *("true_match_guard", "false_match_guard", "none_match_guard"),
}
_MARKED = "_has_dynamo_dim_marking"
_CALLABLES_OF_VALUES = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


def require_leaf(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """Write the check `leaf` on the value in `variable`. Raises Unsupported for a kind it does not know."""
    write = _LEAVES.get(leaf.kind)
    if write is None:
        raise unsupported(f"the guard {leaf.kind!r}", node, leaf)
    write(text, node, leaf, variable)


def _type_match(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    cls = type(node.value)
    if id(cls) != leaf.args[0]:
        raise unsupported("a type guard on something else than the value's type", node, leaf)
    if made_for_one_object(cls):
        fits = text.parametrized_class(cls, user_line(leaf)).attribute("fits")
        text.require(fits.call(type_of(variable)), "TYPE_MATCH", leaf)
        return
    text.require(type_of(variable).is_(text.constant(cls, None, user_line(leaf))), "TYPE_MATCH", leaf)
    if cls in _CALLABLES_OF_VALUES:
        # Dynamo guards the class alone, and the trace has what this object does.
        said = repr(node.value)
        if " at 0x" in said:
            raise unsupported(f"operator.{cls.__name__} of an object", node, leaf)
        same = Name("repr").call(variable).equals(text.constant(said, None, ""))
        text.require(same, "EQUALS_MATCH", leaf)


def _id_match(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    if id(node.value) != leaf.args[0]:
        raise unsupported("an identity guard on something else than the value", node, leaf)
    if node.value is None or type(node.value) is bool:
        text.require(variable.is_(literal(node.value)), "ID_MATCH", leaf)
        return
    name = text.identity(node.value, node, user_line(leaf))
    if name != variable:  # a module that dynamo reached by its own alias is a constant already
        text.require(variable.is_(name), "ID_MATCH", leaf)


def _equals_match(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    value = leaf.args[0]
    where = user_line(leaf)
    kind = type_of(variable).is_(text.constant(type(value), None, where))
    if _has_equals(value):  # an equal one would give another graph
        same = text.alike(variable, value, node, where)
    else:
        same = variable.equals(text.constant(value, node, where))
    text.require(all_of(kind, same), "EQUALS_MATCH", leaf)


def _has_equals(value: Any) -> bool:
    """Whether a different value of its type may be equal to it: 0.0 to -0.0, (1.0, 2) to (1, 2.0)."""
    if isinstance(value, (float, complex)):
        return not value.real or (not value.imag and isinstance(value, complex))
    return isinstance(value, (tuple, list, dict, set, frozenset, slice, range))


def _dict_length(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    size = Name("dict.__len__").call(variable)
    text.require(size.equals(literal(leaf.args[0])), "DICT_LENGTH", leaf)
    keys = list(dict.keys(node.value)) if is_a(node.value, dict) else []
    plain = all(is_plain(key) and key == key for key in keys)
    # Hooks are numbered as a process registers them; which they are, and their order, is compared otherwise.
    hooks = node.accessor == "dict_getitem" and node.key in call_checks.HOOKS
    if keys and plain and not hooks and node.source != f"L[{text.variadic!r}]":
        # The trace knows the order, which can be seen in what it returns; of keywords nobody expects one.
        # An OrderedDict has an order of its own, which `dict.keys` does not see.
        ordered = type(node.value) is collections.OrderedDict
        own = Name("list").call(variable if ordered else Name("dict.keys").call(variable))
        text.require(text.alike(own, keys, None, user_line(leaf)), "DICT_ORDER")


def _marking(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """`mark_dynamic` and its kin leave attributes on a tensor; nearly every tensor has none."""
    expected, absent, dependent = leaf.args[:3]
    wanted = {name: frozenset(value) for name, value in expected.items()}
    absent = list(absent)
    for name, (value, gate) in dependent.items():
        if gate != _MARKED:
            raise unsupported("a tensor marked unbacked", node, leaf)
        # Torch 2.15 compares the ranges of a marked tensor. One that is marked by hand is refused here,
        # whatever its ranges: a miss more than dynamo's, where marks are of no use.
        absent += [name] if value is None else [name, gate]
    known = {*_MARKS, _MARKED}
    unknown = (set(expected) | set(absent)) - known
    if unknown:
        raise unsupported(f"the dimension marking {sorted(unknown)}", node, leaf)
    _require_marks(text, variable, {name: wanted[name] for name in sorted(wanted)}, tuple(sorted(absent)))


def _dynamic_indices(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """`mark_dynamic` alone, which torch 2.11 compares apart from its kin."""
    _require_marks(text, variable, {"_dynamo_dynamic_indices": frozenset(leaf.args[0])}, ())


def _require_marks(
    text: GuardText, variable: Variable | Constant, wanted: dict[str, frozenset[int]], absent: tuple[str, ...]
) -> None:
    own = variable.attribute("__dict__")
    allowed = text.constant(wanted, None, "") if wanted else None
    refused = text.constant(absent, None, "")
    if allowed is None:
        agrees = own.attribute("keys").call().attribute("isdisjoint").call(refused)
    else:
        agrees = Name("marks_agree").call(own, allowed, refused)
    text.require(AnyOf((Negation(own), agrees)), "DIMENSION_MARKING")


def _no_attribute(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    name = leaf.args[0]
    if name in _MARKS:  # as torch 2.11 asks of each tensor whether it is marked
        _require_marks(text, variable, {}, (name,))
        return
    text.require(Negation(Name("hasattr").call(variable, literal(name))), "NO_HASATTR", leaf)


def _dict_contains(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    present, key = leaf.args[:2]
    # What a class has is a proxy of a dict.
    if not present and is_a(node.value, dict) and node.accessor != "type_dict":
        _dict_lacks(text, node, leaf, variable)
        return
    name = text.constant(key, None, user_line(leaf))
    text.require(name.compared("in" if present else "not in", variable), "DICT_CONTAINS", leaf)


def _dict_lacks(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """All keys that a dict was found without are asked for at once, with the first of them."""
    missed = [other for other in node.leaves if other.kind == leaf.kind and not other.args[0]]
    if leaf is missed[0]:
        keys = list(dict.fromkeys(text.constant(other.args[1], None, user_line(other)) for other in missed))
        text.require(lacks(variable, display(keys)), "DICT_LACKS", leaf)
        text.by_kind["DICT_LACKS"] += len(keys) - 1


def _set_contains(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    present, key = leaf.args[:2]
    name = text.constant(key, None, user_line(leaf))
    kind = type_of(variable).is_(text.constant(type(node.value), None, user_line(leaf)))
    inside = name.compared("in" if present else "not in", variable)
    text.require(all_of(kind, inside), "SET_CONTAINS", leaf)


def _mapping_keys(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    keys = list(leaf.args[0].keys())
    here = Name("list").call(variable.attribute("keys").call())
    text.require(text.alike(here, keys, None, user_line(leaf)), "MAPPING_KEYS", leaf)


def _lambda(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """Checks that dynamo writes as Python functions, and that only its words tell apart."""
    for base in _BASES:
        if is_a(node.value, base) and leaf.text.startswith(f"{base.__name__}({node.source}) == "):
            # A number or text of a derived class, such as torch.__version__.
            here = Name(base.__name__).call(variable)
            same = text.alike(here, base(node.value), None, user_line(leaf))
            text.require(same, "CONSTANT_SUBCLASS_MATCH", leaf)
            return
    if type(node.value) is itertools.count and leaf.text.startswith("___normalize_count_iter("):
        kind = type_of(variable).is_(text.constant(itertools.count, None, ""))
        said = Name("repr").call(variable).equals(literal(repr(node.value)))
        text.require(all_of(kind, said), "COUNT", leaf)
        return
    if CHECKED not in leaf.text:
        raise unsupported(f"the guard {leaf.kind!r}", node, leaf)
    require_metadata(text, node, leaf, variable)


def _dict_version(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """Of pytree's registry, which dynamo wants unchanged where it found a class not to be in it.

    Other processes have more or fewer classes in theirs, and a program may add some at any time. What counts
    are the classes that this tree knows: those that were in it, and those that were not.
    """
    if node.value is not pytree_registry():
        raise unsupported(f"the guard {leaf.kind!r}", node, leaf)
    known = _known_classes(node)
    absent = text.constant(tuple(cls for cls in known if cls not in node.value), None, user_line(leaf))
    present = text.constant(frozenset(cls for cls in known if cls in node.value), None, user_line(leaf))
    keys = variable.attribute("keys").call()
    has_none, has_all = keys.attribute("isdisjoint").call(absent), keys.compared(">=", present)
    text.require(all_of(has_none, has_all), "DICT_VERSION", leaf)


def _known_classes(node: GuardNode) -> list[type]:
    """The classes of all values in the node's tree whose class is checked, and the classes it names."""
    found: set[type] = set()
    for current in node.root().nodes():
        kinds = {leaf.kind for leaf in current.leaves}
        if kinds & _FIX_THE_CLASS:
            found.add(type(current.value))
        if "id_match_guard" in kinds and is_a(current.value, type):
            found.add(current.value)
    return sorted(
        (cls for cls in found if not made_for_one_object(cls)),
        key=lambda cls: (module_of(cls), qualname_of(cls)),
    )


def _constant(value: bool | None) -> Write:
    """A check that a value is one of Python's constants. A module's mode is one of them."""

    def write(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
        own = node.parent is not None and node.parent.accessor == "get_generic_dict"
        owner = node.parent.parent if own and node.parent is not None else node.parent
        of_module = owner is not None and is_a(owner.value, torch.nn.Module)
        mode = value is not None and of_module and type(node.key) is str and node.key == "training"
        text.require(variable.is_(literal(value)), "TRAINING" if mode else "EQUALS_MATCH", leaf)

    return write


def _not_none(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    text.require(variable.compared("is not", literal(None)), "EQUALS_MATCH", leaf)


def _length(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    text.require(Name("len").call(variable).equals(literal(leaf.args[0])), "LENGTH", leaf)


def _is_nan(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    kind = type_of(variable).is_(Name("float"))
    text.require(all_of(kind, variable.compared("!=", variable)), "EQUALS_MATCH", leaf)


_LEAVES: dict[str, Write] = {
    "type_match_guard": _type_match,
    "id_match_guard": _id_match,
    "equals_match_guard": _equals_match,
    "dimension_marking_guard": _marking,
    "dynamic_indices_guard": _dynamic_indices,
    "dict_contains_guard": _dict_contains,
    "set_contains_guard": _set_contains,
    "mapping_keys_guard": _mapping_keys,
    "lambda_guard": _lambda,
    "dict_version_guard": _dict_version,
    "dict_length_check_guard": _dict_length,
    "length_check_guard": _length,
    "true_match_guard": _constant(True),
    "false_match_guard": _constant(False),
    "none_match_guard": _constant(None),
    "not_none_guard": _not_none,
    "no_hasattr_guard": _no_attribute,
    "float_is_nan_guard": _is_nan,
}
