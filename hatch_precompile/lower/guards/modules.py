"""Checks on modules of torch's compiler, which a process that runs compiled code does not import."""

from __future__ import annotations

import marshal
from types import ModuleType

from hatch_precompile.lower.guards.builder import GuardText, unsupported
from hatch_precompile.lower.names import Step, is_plain, step
from hatch_precompile.runtime import references
from hatch_precompile.tracing import is_compiler
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["is_late", "require_if_imported"]

# Steps from the module, and what is there: a fingerprint, or of a plain value what marshal makes of it.
Part = tuple[tuple[Step, ...], str | bytes]


def is_late(node: GuardNode) -> bool:
    """Whether the value is a module that `import torch` leaves for the first compile."""
    return type(node.value) is ModuleType and is_compiler(node.value)


def require_if_imported(text: GuardText, node: GuardNode) -> int:
    """Write one check for all that dynamo asks of a module's parts; gives how many of its checks that is.

    Raises Unsupported for any that is not about which object, class or plain value a part is.
    """
    parts: list[Part] = []
    carried = _collect(node, (), parts)
    if parts:
        name = text.if_imported(node.value.__name__, parts)
        text.require(name.attribute("unchanged").call(), "ID_MATCH")
    return carried


def _collect(node: GuardNode, way: tuple[Step, ...], parts: list[Part]) -> int:
    fingerprint = references.fingerprint
    if node.leaves and is_plain(node.value):
        parts.append((way, marshal.dumps(node.value, 2)))  # whatever is asked of it
    else:
        for leaf in node.leaves:
            if leaf.kind == "type_match_guard":
                parts.append(((*way, ("t", None)), fingerprint(type(node.value))))
            elif leaf.kind != "id_match_guard":
                raise unsupported(f"the guard {leaf.kind!r} on a part of torch's compiler", node, leaf)
            elif way:
                parts.append((way, fingerprint(node.value)))
    carried = len(node.leaves)
    for child in node.children:
        steps = step(child)
        if steps is None or child.epilogue or child.relations:
            raise unsupported(f"the guard accessor {child.accessor!r} on a part of torch's compiler", child)
        carried += _collect(child, (*way, *steps), parts)
    return carried
