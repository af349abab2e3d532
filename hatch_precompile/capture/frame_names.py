"""Where the functions of a compiled frame are, so that they can be given their entries in another process."""

from __future__ import annotations

import dataclasses
import gc
import sys
from types import CodeType, FunctionType
from typing import Any

from hatch_precompile.entrypoints.finding import Declared
from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer
from hatch_precompile.records import Place, Reference
from hatch_precompile.runtime import references
from hatch_precompile.static_lookup import attribute, has
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["FrameName", "frame_name", "home_of"]


@dataclasses.dataclass(frozen=True)
class FrameName:
    """module: the one whose globals the frame sees; functions: those with its code; code: where there is
    none, the constant of another function's code that they are made of."""

    module: str
    functions: list[Place]
    code: Place | None


def frame_name(code: CodeType, tree: GuardNode, namer: Namer, declared: Declared, target: str) -> FrameName:
    """The functions that run a code object. Raises Unsupported where none has a name.

    Functions that a decorator made share their code. Of these, the target's own is meant, or those whose
    free variables were what the guards saw.
    """
    module = namer.module
    own = references.function_with(declared.function(), code)
    if own is not None and (place := _own_place(own, declared, target)) is not None:
        return FrameName(module, [place], None)
    functions = [
        reference
        for function in _functions_with(code, tree)
        if (reference := _named(function, namer)) is not None
    ]
    if functions:
        return FrameName(module, functions, None)
    where = f"{code.co_filename}:{code.co_firstlineno}"
    _, owner, steps, fingerprint = namer.reference(code, None, where)
    if not any(kind == references.CODE_CONSTANT for kind, _ in steps):
        raise Unsupported(
            f"{code.co_qualname} is compiled by itself, and no function with its code has a name",
            where,
            "Define it at the top of its module, or put torch.compiler.disable on it.",
        )
    return FrameName(module, [], (owner, steps, fingerprint))


def _own_place(function: FunctionType, declared: Declared, target: str) -> Place | None:
    """The target's function, or one that it decorates, by the way there from the target."""
    module, steps = home_of(declared, target)
    if declared.kind == "module class":
        steps = [*steps, ("a", "forward")]
    value = references.resolve(module, steps)
    while value is not function:
        for name in ("__func__", "__wrapped__", "_torchdynamo_orig_callable"):
            if has(value, name):
                value, steps = attribute(value, name), [*steps, ("a", name)]
                break
        else:
            return None
    return module, steps, references.fingerprint(function)


def _functions_with(code: CodeType, tree: GuardNode) -> list[FunctionType]:
    seen = {node.key[0]: node.value for node in tree.children if node.accessor == "framelocals" and node.key}
    return [
        function
        for function in gc.get_referrers(code)
        if type(function) is FunctionType and function.__code__ is code and _fits(function, seen)
    ]


def _fits(function: FunctionType, seen: dict[str, Any]) -> bool:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            if name in seen and cell.cell_contents is not seen[name]:
                return False
        except ValueError:  # an empty cell
            return False
    return True


def _named(function: FunctionType, namer: Namer) -> Place | None:
    try:
        _, module, steps, fingerprint = namer.reference(function)
    except Unsupported:
        return None
    return module, steps, fingerprint


def home_of(declared: Declared, target: str) -> Reference:
    """Where a target is defined, as the runtime finds it: not where it is inherited or exported again."""
    module, _, qualname = target.partition(":")
    if declared.kind == "method":
        owner = next(cls for cls in declared.owner.__mro__ if declared.attribute in vars(cls))
        candidates = [(owner.__module__, [*_steps(owner.__qualname__), ("d", declared.attribute)])]
        value = vars(owner)[declared.attribute]
    else:
        value = declared.value
        candidates = [(value.__module__, _steps(value.__qualname__))]
    *owners, attribute = qualname.split(".")
    last = ("d", attribute) if declared.kind == "method" else ("a", attribute)
    candidates.append((module, [*_steps(".".join(owners)), last]))
    for home, steps in candidates:
        if home in sys.modules and _leads_to(home, steps, value):
            return home, steps
    raise Unsupported(
        f'target = "{target}" leads to a {type(value).__name__} that no module has by a name',
        advice="Name it where it is defined.",
    )


def _steps(qualname: str) -> list[tuple[str, str]]:
    return [("a", part) for part in qualname.split(".") if part]


def _leads_to(module: str, steps: list[Any], value: Any) -> bool:
    try:
        return references.resolve(module, steps) is value
    except references.Stale:
        return False
