"""Checks of what tensor subclasses that wrap others say of themselves."""

from __future__ import annotations

from hatch_precompile.lower.guards.builder import GuardText, type_of, user_line
from hatch_precompile.lower.guards.checks import Assign, Kind
from hatch_precompile.lower.guards.expressions import (
    Constant,
    Expression,
    Name,
    Negation,
    Variable,
    literal,
)
from hatch_precompile.tracing.guardtree import GuardNode, Leaf
from hatch_precompile.tracing.torchao import FLATTEN, Flattened, flattened_by_names

__all__ = ["CHECKED", "are_checked_by_names", "names_of_wrapped", "require_metadata"]

CHECKED = "___check_metadata_"
"""In dynamo's words for the check."""

_KIND: Kind = "TENSOR_SUBCLASS_METADATA_MATCH"
_NAMES = f".{FLATTEN}()[0]"


def require_metadata(text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant) -> None:
    """What a tensor says of itself besides the tensors that it wraps."""
    known = _by_names(node)
    if known is not None:
        _require_attributes(text, node, leaf, variable, known)
        return
    metadata = node.value.__tensor_flatten__()[1]
    text.add(Assign(_flat(variable), variable.attribute(FLATTEN).call()))
    here = _flat(variable).item(literal(1))
    same = text.alike(here, metadata, node, user_line(leaf))
    if hasattr(node.value, "__metadata_guard__"):
        expected = text.equal(metadata, node, user_line(leaf))
        same = type_of(variable).attribute("__metadata_guard__").call(expected, here)
    text.require(same, _KIND, leaf)


def _require_attributes(
    text: GuardText, node: GuardNode, leaf: Leaf, variable: Variable | Constant, known: Flattened
) -> None:
    """The same of a class whose method reads attributes, of which the class has lists."""
    where = user_line(leaf)
    cls = text.constant(type(node.value), None, where)
    text.require(cls.attribute(FLATTEN).is_(text.constant(known.method, None, where)), _KIND)
    for name, listed in known.lists.items():
        is_there = text.alike(cls.attribute(name), listed, None, where)
        lacks = Negation(Name("hasattr").call(cls, literal(name)))
        text.require(is_there if listed is not None else lacks, _KIND)
    own = variable.attribute("__dict__").attribute("keys").call()
    text.require(own.attribute("isdisjoint").call(literal((FLATTEN, *known.lists))), _KIND, leaf)
    for name, present in known.tensors.items():
        how = "is not" if present else "is"
        text.require(variable.attribute(name).compared(how, literal(None)), _KIND, leaf)
    for name, value in known.attributes.items():
        text.require(text.alike(variable.attribute(name), value, node, where), _KIND, leaf)


def _flat(variable: Variable | Constant) -> Variable:
    """The variable with what a tensor says of itself."""
    assert isinstance(variable, Variable)
    return Variable(variable.number, "_flat")


def names_of_wrapped(node: GuardNode, base: Variable | Constant) -> Expression | None:
    """The expression for a node whose value are the names of the tensors that another wraps, or None."""
    if not node.source.endswith(_NAMES):
        return None
    assert node.parent is not None
    # It is asked once where what it says is checked, too.
    said = _flat(base) if _is_checked(node.parent) else base.attribute(FLATTEN).call()
    return said.item(literal(0))


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
