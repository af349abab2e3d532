"""One guard function as it is written: checks, variables, constants.

In its text `L` are the frame's locals, `G` its globals, `v3` a value reached on the way, `c3` a constant that
is found again at load time, `T0` a group of tensors checked in one C++ call.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.guards.checks import Accept, Assign, Check, Function, Kind, Load, Statement
from hatch_precompile.lower.guards.deduplication import Block, Line, flat, share_parts
from hatch_precompile.lower.guards.expressions import (
    Constant,
    Expression,
    Literal,
    Name,
    Variable,
    all_of,
    literal,
)
from hatch_precompile.lower.names import Namer, is_plain
from hatch_precompile.lower.parametrized import parametrized_class
from hatch_precompile.runtime import references
from hatch_precompile.static_lookup import attribute, is_a
from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["GuardText", "type_of", "unsupported", "user_line"]

_NUMBERS = (bool, int, float, complex)
# What may be equal to something else, or hold such.
_MAY_BE_EQUAL = (*_NUMBERS, str, tuple, list, dict, set, frozenset, slice, range)

# Constants that are found again in each process.
_REBOUND = ("ref", "parametrized", "if-imported")


class GuardText:
    """Collects statements and constants, and counts the checks by kind."""

    def __init__(self, namer: Namer, variadic: str = "") -> None:
        """variadic: the frame's parameter that takes any keyword."""
        self.namer = namer
        self.variadic = variadic
        self.constants: list[Any] = []
        self.notes: list[str] = []
        self.rebound = 0
        self.by_kind: dict[str, int] = {}
        self._items: list[Line] = []
        self._open: list[list[Line]] = [self._items]
        self._required: set[Expression] = set()
        self._indexes: dict[str, int] = {}
        self._stub: list[Statement] = []

    def end_stub(self) -> None:
        """Keep as the stub what is written so far and can be asked before the entry is loaded.

        Left out is what needs a constant, or a variable whose value needs one: the stub would raise, and so
        refuse, for ever. So is what asks a variable whose class check is left out: on another class it may be
        a property, which dynamo would not have run.
        """
        self._items[:] = flat(self._items)
        self._stub = []
        missing: set[Expression] = set()
        known: set[Expression] = set()
        for statement in flat(self._items):
            names = {token for line in statement.lines() for token in line if not isinstance(token, str)}
            if names & missing or any(isinstance(name, Constant) for name in names):
                made = {statement.target} if isinstance(statement, Assign) else names - known
                missing.update(name for name in made if isinstance(name, Variable))
            else:
                if isinstance(statement, Check) and statement.typed is not None:
                    known.add(statement.typed)
                self._stub.append(statement)

    @contextlib.contextmanager
    def block(self, value: Variable | Constant) -> Iterator[None]:
        """What is written inside is about a value and all that is reached from it."""
        block = Block(value, [])
        self._open[-1].append(block)
        self._open.append(block.items)
        yield
        self._open.pop()

    def add(self, statement: Statement) -> None:
        """A statement that is no check, or one that asks a part of what another asks."""
        self._open[-1].append(statement)

    def require(self, condition: Expression, kind: Kind, leaf: Leaf | None = None) -> None:
        """A check: the frame is refused unless `condition` holds. One made before is not made again."""
        if condition in self._required:
            return
        self._required.add(condition)
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        self.add(Check(kind, condition, user_line(leaf)))

    def constant(self, value: Any, node: GuardNode | None, where: str) -> Literal | Name | Constant:
        """An expression for a value: a literal, or the name of a constant found at load time."""
        if is_plain(value) and _has_literal(value):
            return literal(value)
        return _builtin_name(value) or self._named(self.namer.constant(value, node, where))

    def found(self, value: Any) -> Constant:
        """The name of a constant for a module or another object that is found at load time."""
        return self._named(self.namer.constant(value, None, ""))

    def equal(self, value: Any, node: GuardNode | None, where: str) -> Literal | Constant:
        """As `constant`, of which only counts what it is equal to."""
        if is_plain(value) and _has_literal(value):
            return literal(value)
        return self._named(self.namer.equal(value, node, where))

    def alike(self, here: Expression, value: Any, node: GuardNode | None, where: str) -> Expression:
        """The condition that what the expression `here` gives is like a value: equal, and of the same types
        all through. Sets of numbers have the order in which the trace may have gone through them."""
        if value is None or isinstance(value, bool):
            return here.is_(literal(value))
        if type(value) in (set, frozenset) and all(type(item) in _NUMBERS for item in value):
            items = self.constant(list(value), None, where)
            same = Name("alike").call(Name("list").call(here), items)
            return all_of(type_of(here).is_(Name(type(value).__name__)), same)
        expected = self.equal(value, node, where)
        return (
            Name("alike").call(here, expected) if isinstance(value, _MAY_BE_EQUAL) else here.equals(expected)
        )

    def identity(self, value: Any, node: GuardNode, where: str) -> Constant:
        """The name of a constant that is the very object."""
        return self._named(self.namer.reference(value, node, where))

    def parametrized_class(self, cls: type, where: str) -> Constant:
        """The name of a constant that knows classes made as this one was."""
        return self._named(parametrized_class(cls, self.namer, where))

    def if_imported(self, module: str, parts: list[Any]) -> Constant:
        """The name of a constant that knows parts of a module, each as (steps, what is there)."""
        return self._named(["if-imported", module, parts])

    def _named(self, encoded: Any) -> Constant:
        key = repr(encoded)
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = len(self.constants)
            self.constants.append(encoded)
            self.notes.append(_note(encoded))
        self.rebound += type(encoded) is list and encoded[0] in _REBOUND
        return Constant(index)

    def functions(self) -> list[Function]:
        """All functions, `guard` last. A raise is a refusal: torch drops it, as one in dynamo's tree."""
        body, parts = share_parts(self._items)
        return [*parts, Function("guard", "L", [*body, Accept(hit=True)])]

    def stub(self) -> Function:
        """The function that stands in for it until a call gets past the stub's checks."""
        return Function("guard", "L", [*self._stub, Load()])


def type_of(value: Expression) -> Expression:
    return Name("type").call(value)


def unsupported(construct: str, node: GuardNode, leaf: Leaf | None = None) -> Unsupported:
    """The error for a check that cannot be carried, with dynamo's words for it and its source line."""
    reached = f" on {node.source}" if node.source else ""
    words = f" ({leaf.text})" if leaf is not None and leaf.text else ""
    return Unsupported(f"{construct}{reached} cannot be carried in a wheel{words}", user_line(leaf))


def user_line(leaf: Leaf | None) -> str:
    """The user's source line that made dynamo add a check: `x.gelu()  # toy.py:10 in forward`."""
    if leaf is None:
        return ""
    _, marker, comment = leaf.text.partition("  # ")
    line = " ".join(comment.split(" and ")[0].split()) if marker else ""
    # The folders are the build machine's own.
    return re.sub(r"# \S*/(\S+:\d+ in )", r"# \1", line)


def _builtin_name(value: Any) -> Name | None:
    """The name of a builtin class, which needs no reference."""
    name = attribute(value, "__name__") if is_a(value, type) else ""
    return Name(name) if vars(builtins).get(name) is value else None


def _has_literal(value: Any) -> bool:
    """Whether repr gives Python source for the value: not so for inf, nan and sets."""
    if isinstance(value, tuple):
        return all(_has_literal(item) for item in value)
    if isinstance(value, (float, complex)):
        return math.isfinite(value.real) and math.isfinite(value.imag)
    return not isinstance(value, frozenset)


def _note(encoded: Any) -> str:
    if type(encoded) is list and encoded[0] == "ref":
        return references.spell(encoded[1], encoded[2])
    if type(encoded) is list and encoded[0] == "parametrized":
        return f"classes made as {encoded[1][1]} was"
    if type(encoded) is list and encoded[0] == "if-imported":
        return f"{encoded[1]}, if it is imported"
    return repr(encoded)
