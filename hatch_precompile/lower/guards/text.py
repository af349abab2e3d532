"""The text of one guard function as it is written: checks, variables, constants.

A check is one line. `L` are the frame's locals, `G` its globals, `v3` a value reached on the way, `c3`
a constant that is found again at load time, `T0` a group of tensors checked in one C++ call.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.looking import attribute, is_a
from hatch_precompile.lower.guards.shortening import Block, Item, flat, function_text, share_parts
from hatch_precompile.lower.names import Namer, is_plain
from hatch_precompile.lower.parametrized import parametrized_class
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["GuardText", "unsupported", "user_line"]

_NAME = re.compile(r"\b(?:c\d+|v\d+(?:_keys|_flat)?)\b")

_TYPE_CHECK = re.compile(r"^if not \(type\((v\d+)\) is ")

_NUMBERS = (bool, int, float, complex)
# What may be equal to something else, or hold such.
_MAY_BE_EQUAL = (*_NUMBERS, str, tuple, list, dict, set, frozenset, slice, range)

# Constants that are found again in each process.
_REBOUND = ("ref", "parametrized", "if-imported")


class GuardText:
    """Collects lines and constants, and counts the checks by kind."""

    def __init__(self, namer: Namer, variadic: str = "") -> None:
        """variadic: the frame's parameter that takes any keyword."""
        self.namer = namer
        self.variadic = variadic
        self.constants: list[Any] = []
        self.rebound = 0
        self.by_kind: dict[str, int] = {}
        self._items: list[Item] = []
        self._open: list[list[Item]] = [self._items]
        self._notes: list[str] = []
        self._required: set[str] = set()
        self._indexes: dict[str, int] = {}
        self._stub: list[str] = []

    def end_stub(self) -> None:
        """What is written so far, and needs no constant, is what an entry asks before it is loaded.

        Nor may it need a variable whose value needs one: the stub would raise, and so refuse, for ever. Nor
        one of which a check is left out that says of which class it is: what is asked of another class may be
        a property, which dynamo would not have run.
        """
        self._items[:] = flat(self._items)
        self._stub = []
        missing: set[str] = set()
        known: set[str] = set()
        for line in flat(self._items):
            names = set(_NAME.findall(line))
            if names & missing or any(name.startswith("c") for name in names):
                made = re.findall(rf"^({_NAME.pattern}) = ", line)
                missing.update(made or {name for name in names - known if name.startswith("v")})
            else:
                known.update(_TYPE_CHECK.findall(line))
                self._stub.append(line)

    @contextlib.contextmanager
    def block(self, variable: str) -> Iterator[None]:
        """What is written inside is about the value in `variable` and all that is reached from it."""
        block = Block(variable, [])
        self._open[-1].append(block)
        self._open.append(block.items)
        yield
        self._open.pop()

    def add(self, line: str) -> None:
        """A line that is no check."""
        self._open[-1].append(line)

    def require(self, condition: str, kind: str, leaf: Leaf | None = None) -> None:
        """A check: the frame is refused unless `condition` holds. One made before is not made again."""
        if condition in self._required:
            return
        self._required.add(condition)
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        comment = user_line(leaf)
        self._open[-1].append(f"if not ({condition}): return False" + (f"  # {comment}" if comment else ""))

    def constant(self, value: Any, node: GuardNode | None, where: str) -> str:
        """An expression for a value: a literal, or the name of a constant found at load time."""
        if is_plain(value) and _has_literal(value):
            return repr(value)
        return _builtin_name(value) or self._named(self.namer.constant(value, node, where))

    def equal(self, value: Any, node: GuardNode | None, where: str) -> str:
        """As `constant`, of which only counts what it is equal to."""
        if is_plain(value) and _has_literal(value):
            return repr(value)
        return self._named(self.namer.equal(value, node, where))

    def alike(self, here: str, value: Any, node: GuardNode | None, where: str) -> str:
        """The condition that what the expression `here` gives is like a value: equal, and of the same types
        all through. Sets of numbers have the order in which the trace may have gone through them."""
        if value is None or isinstance(value, bool):
            return f"{here} is {value!r}"
        if type(value) in (set, frozenset) and all(type(item) in _NUMBERS for item in value):
            items = self.constant(list(value), None, where)
            return f"type({here}) is {type(value).__name__} and alike(list({here}), {items})"
        expected = self.equal(value, node, where)
        return f"alike({here}, {expected})" if isinstance(value, _MAY_BE_EQUAL) else f"{here} == {expected}"

    def identity(self, value: Any, node: GuardNode, where: str) -> str:
        """The name of a constant that is the very object."""
        return self._named(self.namer.reference(value, node, where))

    def parametrized_class(self, cls: type, where: str) -> str:
        """The name of a constant that knows classes made as this one was."""
        return self._named(parametrized_class(cls, self.namer, where))

    def if_imported(self, module: str, parts: list[Any]) -> str:
        """The name of a constant that knows parts of a module, each as (steps, what is there)."""
        return self._named(["if-imported", module, parts])

    def _named(self, encoded: Any) -> str:
        key = repr(encoded)
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = len(self.constants)
            self.constants.append(encoded)
            self._notes.append(f"# c{index}: {_note(encoded)}")
        self.rebound += type(encoded) is list and encoded[0] in _REBOUND
        return f"c{index}"

    def source(self) -> str:
        """All functions, `guard` last. A raise is a refusal: torch drops it, as one in dynamo's tree."""
        lines, parts = share_parts(self._items)
        functions = [function_text(part.name, part.parameter, part.lines) for part in parts]
        functions.append(function_text("guard", "L", [*lines, "entry.hits += 1", "return True"]))
        return "\n\n".join(["\n".join(self._notes) + "\n", *functions])

    def stub(self) -> str:
        """The function that stands in for it until a call gets past the stub's checks."""
        return function_text("guard", "L", [*self._stub, "return load(L)"])


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


def _builtin_name(value: Any) -> str:
    """The name of a builtin class, which needs no reference."""
    name = attribute(value, "__name__") if is_a(value, type) else ""
    return name if vars(builtins).get(name) is value else ""


def _has_literal(value: Any) -> bool:
    """Whether repr gives Python source for the value: not so for inf, nan and sets."""
    if isinstance(value, tuple):
        return all(_has_literal(item) for item in value)
    if isinstance(value, (float, complex)):
        return math.isfinite(value.real) and math.isfinite(value.imag)
    return not isinstance(value, frozenset)


def _note(encoded: Any) -> str:
    if type(encoded) is list and encoded[0] == "ref":
        return str(runtime("references").spell(encoded[1], encoded[2]))
    if type(encoded) is list and encoded[0] == "parametrized":
        return f"classes made as {encoded[1][1]} was"
    if type(encoded) is list and encoded[0] == "if-imported":
        return f"{encoded[1]}, if it is imported"
    return repr(encoded)
