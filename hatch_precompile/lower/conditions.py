"""What an entry asks of a call, in the author's words: for the report of the build, not for the bundle.

The guard function has all of it, and more. Here is what an author can do something about: the sizes and
values that were fixed because no sample and no declaration lets them vary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.guards.builder import user_line
from hatch_precompile.records import Conditions, FixedValue, TensorInput
from hatch_precompile.static_lookup import is_a
from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["conditions_of", "require_free"]

_CONSTANTS = {"true_match_guard": True, "false_match_guard": False, "none_match_guard": None}
_LENGTHS = ("length_check_guard", "dict_length_check_guard")

# How dynamo reaches a value, and how the author of a model writes that.
_SPELLINGS = (
    (re.compile(r"\._modules\['(\d+)'\]"), r"[\1]"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.__dict__\['([a-zA-Z_]\w*)'\]"), r".\1"),
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
)


def conditions_of(root: GuardNode) -> Conditions:
    """The conditions of one recorded tree that are about what the caller passes in and what the model is."""
    inputs: list[TensorInput] = []
    values: list[FixedValue] = []
    for node, of_caller in _reached(root, of_caller=True):
        for leaf in node.leaves:
            if leaf.kind == "tensor_match_guard" and of_caller:
                inputs.append(_tensor(node, leaf))
            elif (value := _fixed(leaf)) is not None:
                values.append(FixedValue(_spelled(node.source), value, of_caller))
            elif leaf.kind in _LENGTHS and of_caller:
                values.append(FixedValue(f"len({_spelled(node.source)})", str(leaf.args[0]), of_caller))
    sizes = [
        _spelled(text) for leaf in root.epilogue for text in leaf.expressions or () if " is " not in text
    ]
    return Conditions(inputs, values, list(dict.fromkeys(sizes)))


def require_free(tree: GuardNode, numbers: Sequence[str]) -> None:
    """Raises Unsupported where an argument that was declared dynamic has become a constant of the trace."""
    for name in numbers:
        leaves = [leaf for node in tree.children if node.source == f"L[{name!r}]" for leaf in node.leaves]
        fixed = next((leaf for leaf in leaves if leaf.kind == "equals_match_guard"), None)
        for leaf in tree.epilogue:
            if any(re.match(rf"L\['{name}'\] == -?\d", text) for text in leaf.expressions or ()):
                fixed = leaf
        if fixed is not None:
            raise Unsupported(
                f"dynamic-numbers: the code fixes {name} to the sample's value",
                user_line(fixed),
                "Take it off the list and give a sample for each value, or change what is done with it.",
            )


def _reached(node: GuardNode, *, of_caller: bool) -> Iterator[tuple[GuardNode, bool]]:
    """Every value reached from the frame's locals, and whether it came in as an argument of the call.

    What hangs on a module, or on `self`, is the model's own; globals are neither.
    """
    for child in node.children:
        if node.parent is None and child.accessor != "framelocals":
            continue
        own = is_a(child.value, torch.nn.Module) or child.source == "L['self']"
        yield child, of_caller and not own
        yield from _reached(child, of_caller=of_caller and not own)


def _tensor(node: GuardNode, leaf: Leaf) -> TensorInput:
    value, sizes = leaf.args[:2]
    return TensorInput(
        name=_spelled(node.source),
        dtype=str(value.dtype).removeprefix("torch."),
        size=list(value.size()),
        fixed=[size is not None for size in sizes],
        contiguous=value.layout is not torch.strided or value.is_contiguous(),
    )


def _fixed(leaf: Leaf) -> str | None:
    """The value that a check asks for, if it is a plain one."""
    if leaf.kind in _CONSTANTS:
        return repr(_CONSTANTS[leaf.kind])
    if leaf.kind == "equals_match_guard":
        value: Any = leaf.args[0]
        if isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
            return repr(value)
    return None


def _spelled(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text
