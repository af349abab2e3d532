"""Guards on derived dicts by the keys that the trace has asked for; dynamo's ask for all, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hatch_precompile.static_lookup import is_a
from hatch_precompile.tracing import Asked
from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["ask_for_keys_alone"]


def ask_for_keys_alone(tree: GuardNode, found: Iterable[Asked]) -> None:
    """Change the guards on dicts of which the trace has asked for single keys: these are asked for by name,
    wherever they stand, and it is not asked what else there is."""
    by_value: dict[int, list[Asked]] = {}
    for asked in found:
        by_value.setdefault(id(asked.value), []).append(asked)
    alone = {
        identity: set().union(*(asked.keys for asked in all_of_it))
        for identity, all_of_it in by_value.items()
        if not any(asked.whole for asked in all_of_it)
    }
    for node in [node for node in tree.nodes() if is_a(node.value, dict)]:
        if id(node.value) in alone:
            _by_name(node, alone[id(node.value)])


def _has(node: GuardNode, keys: set[Any]) -> None:
    """Those of the keys that are in a dict, and of whose values nothing is asked."""
    names = list(dict.keys(node.value))
    looked_at = {child.key for child in node.children if child.accessor == "dict_getitem"}
    looked_at |= {names[child.key] for child in node.children if child.accessor == "get_value"}
    known = {leaf.args[1] for leaf in node.leaves if leaf.kind == "dict_contains_guard"}
    for key in sorted(keys.intersection(names).difference(looked_at, known), key=repr):
        node.leaves.append(Leaf("dict_contains_guard", (True, key, [f"{key!r} in {node.source}"])))


def _by_name(node: GuardNode, keys: set[Any]) -> None:
    _has(node, keys)
    names = list(dict.keys(node.value))
    node.keyed = False
    node.leaves = [leaf for leaf in node.leaves if leaf.kind != "dict_length_check_guard"]
    lacks = {leaf.args[1] for leaf in node.leaves if leaf.kind == "dict_contains_guard" and not leaf.args[0]}
    for key in sorted(keys.difference(names, lacks), key=repr):
        node.leaves.append(Leaf("dict_contains_guard", (False, key, [f"{key!r} not in {node.source}"])))
    node.children = [child for child in node.children if child.accessor != "get_key"]
    for child in node.children:
        if child.accessor == "get_value":
            child.accessor, child.key = "dict_getitem", names[child.key]
