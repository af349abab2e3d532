"""Lines of a guard function for what dynamo took for constant and a process may change between two calls."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from hatch_precompile.lower.guards.text import GuardText
from hatch_precompile.lower.inputs.writer import Inputs
from hatch_precompile.runtime import runtime
from hatch_precompile.torch_internals.guardtree import GuardNode

__all__ = ["require_inputs", "require_hooks"]


def require_inputs(text: GuardText, inputs: Inputs) -> None:
    """The environment must be as it was, and functions about the process must answer as they did."""
    for name, value in inputs.environment:
        text.require(f"environment({name!r}) == {value!r}", "ENVIRONMENT")
    if inputs.draws:
        text.require("not in_checkpoint()", "CHECKPOINT")
    for call in inputs.state:
        function = text.constant(call.function, None, call.where)
        given = [text.constant(value, None, call.where) for value in call.args]
        given += [f"{name}={text.constant(value, None, call.where)}" for name, value in call.kwargs.items()]
        same = "is" if call.value is None or isinstance(call.value, bool) else "=="
        expected = text.constant(call.value, None, call.where)
        text.require(f"{function}({', '.join(given)}) {same} {expected}", "PROCESS_STATE")


def require_hooks(
    text: GuardText, root: GuardNode, variables: dict[int, str], called: Container[int]
) -> None:
    """The hooks of the modules that are called must be those of the build: dynamo has no guards on them."""
    tops = [node for node in _top_modules(root) if id(node) in variables]
    distinct = {
        variables[id(node)]: (node.value, _is_frames_own(node) and id(node.value) not in called)
        for node in tops
    }
    if not distinct:
        return
    hooks = runtime("inputs").hooks_of(*distinct.values())
    given = ", ".join(f"({variable}, {own})" for variable, (_, own) in distinct.items())
    text.require(f"module_hooks({given}) == {hooks!r}", "HOOKS")


def _top_modules(node: GuardNode) -> list[GuardNode]:
    found: list[Any] = []
    for child in node.children:
        found += [child] if isinstance(child.value, torch.nn.Module) else _top_modules(child)
    return found


def _is_frames_own(node: GuardNode) -> bool:
    """Whether it is the frame's `self`, whose call runs its hooks around the frame."""
    return node.accessor == "framelocals" and node.key[0] == "self"
