"""Checks for what dynamo took for constant and a process may change between two calls."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.writer import SPECIAL, Dependencies
from hatch_precompile.lower.guards.builder import GuardText
from hatch_precompile.lower.guards.expressions import (
    Constant,
    Keyword,
    Name,
    Negation,
    Variable,
    display,
    lacks,
    literal,
)
from hatch_precompile.runtime import call_checks
from hatch_precompile.static_lookup import is_a
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = [
    "require_apart",
    "require_dependencies",
    "require_hooks",
    "require_lacking",
    "require_memory",
    "require_same",
]


# Dynamo's name for a value, and the variable that it is in.
Reached = Mapping[str, Variable | Constant]


def require_dependencies(text: GuardText, dependencies: Dependencies) -> None:
    """The environment must be as it was, and functions about the process must answer as they did."""
    for each in dependencies.environment:
        text.require(Name("environment").call(literal(each.name)).equals(literal(each.value)), "ENVIRONMENT")
    if dependencies.draws:
        text.require(Negation(Name("in_checkpoint").call()), "CHECKPOINT")
    for call in dependencies.state:
        function = text.constant(call.function, None, call.where)
        given = [text.constant(value, None, call.where) for value in call.args]
        named = [Keyword(name, text.constant(value, None, call.where)) for name, value in call.kwargs.items()]
        answer = function.call(*given, *named)
        text.require(text.alike(answer, call.value, None, call.where), "PROCESS_STATE")


def require_same(text: GuardText, dependencies: Dependencies, by_source: Reached) -> None:
    """What was one object in two places must be one here, too."""
    for names in dependencies.same:
        one, other = (_reached(name, by_source) for name in names)
        text.require(one.is_(other), "OBJECT_ALIASING")


def require_apart(text: GuardText, dependencies: Dependencies, by_source: Reached) -> None:
    """Objects that the trace has told apart must be two here, too."""
    pairs = [(_reached(one, by_source), _reached(other, by_source)) for one, other in dependencies.apart]
    in_order = {tuple(sorted(pair, key=str)) for pair in pairs}
    for one, other in sorted(in_order, key=lambda pair: tuple(map(str, pair))):
        text.require(one.compared("is not", other), "IDENTITY")
    copied = [by_source[name] for name in dependencies.copied if name in by_source]
    if len(copied) > 1:
        ids = display([Name("id").call(each) for each in copied], "{}")
        text.require(Name("len").call(ids).equals(literal(len(copied))), "COPIED")


def require_memory(text: GuardText, dependencies: Dependencies, by_source: Reached) -> None:
    """What a graph writes to must be in the memory of no other tensor that it takes."""
    for each in dependencies.memory:
        lists = [
            display([_reached(name, by_source) for name in names]) for names in (each.written, each.others)
        ]
        if len(each.written) + len(each.others) > 1:
            text.require(Name("apart_in_memory").call(*lists), "MEMORY")


def _reached(source: str, by_source: Reached) -> Variable | Constant:
    """The variable with what dynamo reaches by that name."""
    if source not in by_source:
        raise Unsupported(
            f"whether {source} is the same object as others counts in the trace, and no guard reaches it",
            advice="Pass it as an argument, or make it an attribute of the model.",
        )
    return by_source[source]


def require_lacking(text: GuardText, dependencies: Dependencies, frame_globals: dict[str, Any]) -> None:
    """A module or a class must not have got a name that the trace did not find there: it would be found
    before a builtin, and before what a base has or `__getattr__` answers."""
    for module in dependencies.hiding:
        here = Name("G") if module.own is frame_globals else text.constant(module.own, None, "")
        text.require(lacks(here, literal(module.names)), "ABSENT_GLOBAL")
    for each in dependencies.lacking:
        cls = text.constant(each.cls, None, "")
        lacking = Name("class_lacks").call(cls, literal(each.bases), literal(each.names))
        text.require(lacking, "ABSENT_IN_CLASS")
    for has in dependencies.special:
        special = text.constant(SPECIAL, None, "")
        just = Name("class_has").call(text.constant(has.cls, None, ""), special, literal(has.names))
        text.require(just, "SPECIAL_METHODS")


def require_hooks(
    text: GuardText, root: GuardNode, variables: dict[int, Variable | Constant], called: Container[int]
) -> None:
    """The hooks of the modules that are called must be those of the build: dynamo has no guards on them."""
    tops = [node for node in _top_modules(root) if id(node) in variables]
    distinct = {
        variables[id(node)]: (node.value, _is_frames_own(node) and id(node.value) not in called)
        for node in tops
    }
    if not distinct:
        return
    hooks = call_checks.hooks_of(*distinct.values())
    given = [display([variable, literal(own)]) for variable, (_, own) in distinct.items()]
    text.require(Name("module_hooks").call(*given).equals(literal(hooks)), "HOOKS")


def _top_modules(node: GuardNode) -> list[GuardNode]:
    found: list[Any] = []
    for child in node.children:
        found += [child] if is_a(child.value, torch.nn.Module) else _top_modules(child)
    return found


def _is_frames_own(node: GuardNode) -> bool:
    """Whether it is the frame's `self`, whose call runs its hooks around the frame."""
    return node.accessor == "framelocals" and node.key[0] == "self"
