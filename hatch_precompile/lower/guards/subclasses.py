"""Checks of what tensor subclasses that wrap others say of themselves."""

from __future__ import annotations

from hatch_precompile.lower.guards.text import GuardText, user_line
from hatch_precompile.tracing.guardtree import GuardNode, Leaf
from hatch_precompile.tracing.torchao import FLATTEN, Flattened, flattened_by_names

__all__ = ["CHECKED", "are_checked_by_names", "names_of_wrapped", "require_metadata"]

CHECKED = "___check_metadata_"
"""In dynamo's words for the check."""

_KIND = "TENSOR_SUBCLASS_METADATA_MATCH"
_NAMES = f".{FLATTEN}()[0]"


def require_metadata(text: GuardText, node: GuardNode, leaf: Leaf, variable: str) -> None:
    """What a tensor says of itself besides the tensors that it wraps."""
    known = _by_names(node)
    if known is not None:
        _require_attributes(text, node, leaf, variable, known)
        return
    metadata = node.value.__tensor_flatten__()[1]
    text.add(f"{variable}_flat = {variable}.{FLATTEN}()")
    here = f"{variable}_flat[1]"
    same = text.alike(here, metadata, node, user_line(leaf))
    if hasattr(node.value, "__metadata_guard__"):
        expected = text.equal(metadata, node, user_line(leaf))
        same = f"type({variable}).__metadata_guard__({expected}, {here})"
    text.require(same, _KIND, leaf)


def _require_attributes(
    text: GuardText, node: GuardNode, leaf: Leaf, variable: str, known: Flattened
) -> None:
    """The same of a class whose method reads attributes, of which the class has lists."""
    where = user_line(leaf)
    cls = text.constant(type(node.value), None, where)
    text.require(f"{cls}.{FLATTEN} is {text.constant(known.method, None, where)}", _KIND)
    for name, listed in known.lists.items():
        is_there = text.alike(f"{cls}.{name}", listed, None, where)
        text.require(is_there if listed is not None else f"not hasattr({cls}, {name!r})", _KIND)
    text.require(f"{variable}.__dict__.keys().isdisjoint({(FLATTEN, *known.lists)!r})", _KIND, leaf)
    for name, present in known.tensors.items():
        text.require(f"{variable}.{name} is {'not ' if present else ''}None", _KIND, leaf)
    for name, value in known.attributes.items():
        text.require(text.alike(f"{variable}.{name}", value, node, where), _KIND, leaf)


def names_of_wrapped(node: GuardNode, base: str) -> str:
    """The expression for a node whose value are the names of the tensors that another wraps, or ""."""
    if not node.source.endswith(_NAMES):
        return ""
    assert node.parent is not None
    # It is asked once where what it says is checked, too.
    return f"{base}_flat[0]" if _is_checked(node.parent) else f"{base}{_NAMES}"


def are_checked_by_names(node: GuardNode) -> bool:
    """Whether a node is those names, and the attributes that they come from have been checked."""
    parent = node.parent
    names = parent is not None and node.accessor == "lambda" and node.source.endswith(_NAMES)
    return names and parent is not None and _is_checked(parent) and _by_names(parent) is not None


def _is_checked(node: GuardNode) -> bool:
    return any(CHECKED in leaf.text for leaf in node.leaves)


def _by_names(node: GuardNode) -> Flattened | None:
    """What is known of a tensor that is compared as torch knows it, too."""
    as_torch_knows_it = any(leaf.kind == "tensor_match_guard" for leaf in node.leaves)
    return flattened_by_names(node.value) if as_torch_knows_it else None
