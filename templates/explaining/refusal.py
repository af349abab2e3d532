"""Runs a guard function line by line, and finds where it stopped and what its variables are.

What its lines ask is data that lies in the bundle. Loaded with explanations only.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from ..errors import raised_by_signal

__all__ = ["Check", "Stop", "first_failure"]

_MEMBERS = ("_modules", "_parameters", "_buffers")
_UNKNOWN: tuple[str, dict[str, Any], tuple[Any, ...]] = ("", {}, ())


class Check(NamedTuple):
    """What a line asks: see `_of_check` in hatch_precompile/lower/guards/explanation_data.py."""

    kind: str
    where: str
    condition: Sequence[str]
    places: Sequence[str]
    expected: Any
    needed: Sequence[str]


class _Scope(NamedTuple):
    """One function of a guard, as it was called: `p3` with what is in `v12` of another scope, or `guard`."""

    name: str
    caller: _Scope | None = None
    argument: str = ""


class _Way(NamedTuple):
    """How a value is reached, as the author of a model writes it. of: for the dict of an object's attributes
    or members (`of.members`) the way to that object."""

    text: str
    of: str = ""
    members: str = ""


class Stop:
    """Where a guard function refused. passed: the lines that ran before."""

    def __init__(self, words: Any, lines: _Lines) -> None:
        frames, self.values = lines.refused[0] if lines.refused else lines.last
        self.passed = lines.passed
        self._notes: Sequence[str] = words[0] if words else ()
        self._functions: dict[str, Any] = words[1] if words else {}
        self._scope = _Scope(frames[0][0])
        for (name, line), (called, _) in itertools.pairwise(frames):
            said = self._line(name, line)
            self._scope = _Scope(called, self._scope, said[1] if said and said[0] == "part" else "")
        self._said = self._line(*frames[-1])

    def _line(self, function: str, number: int) -> Any:
        lines = self._functions.get(function, _UNKNOWN)[2]
        return lines[number] if number < len(lines) else None

    @property
    def check(self) -> Check | None:
        """What was asked; None where there is no telling."""
        return Check(*self._said[1:]) if self._said and self._said[0] == "check" else None

    @property
    def line(self) -> str:
        """The condition, or the assignment, as it is in the readable guard."""
        if self.check is not None:
            return "".join(self.check.condition)
        return "".join(self._said[2]) if self.missing else ""

    @property
    def missing(self) -> str:
        """The way to a value that was not there."""
        return self.path(self._said[1]) if self._said and self._said[0] == "reach" else ""

    def path(self, variable: str) -> str:
        """How a variable's value is reached, such as `self.layers[1].weight`."""
        return self._named(self._scope, variable, None)

    def attributes_of(self, variable: str) -> str:
        """Whose attributes are in a variable; empty for any other dict."""
        way = self._way(self._scope, variable)
        return "" if way.members else way.of

    def spelled(self, pieces: Sequence[str], value_of: Callable[[str], str] | None = None) -> str:
        """A condition with its variables as they are reached, and its constants by their names, or by their
        values where it asks for those."""
        return self._spelled(self._scope, pieces, value_of)

    def _spelled(self, scope: _Scope, pieces: Sequence[str], value_of: Any = None) -> str:
        names = (self._named(scope, name, value_of) for name in pieces[1::2])
        return "".join(map("".join, zip(pieces[::2], (*names, ""), strict=True)))

    def _named(self, scope: _Scope, name: str, value_of: Any) -> str:
        kind, number = name[0], name[1:]
        if kind == "=" and value_of is not None:
            return str(value_of(number))
        if kind == "c" and int(number) < len(self._notes):
            return str(self._notes[int(number)])
        return self._way(scope, name).text

    def _way(self, scope: _Scope, variable: str) -> _Way:
        parameter, ways, _ = self._functions.get(scope.name, _UNKNOWN)
        if variable == parameter and scope.caller is not None:
            return self._way(scope.caller, scope.argument)
        how, *rest = ways.get(variable, ("",))
        if how == "given":  # by a part of the function
            part, argument, name = rest
            return self._way(_Scope(part, scope, argument), name)
        if how == "text":
            return _Way(self._spelled(scope, rest[0]))
        if how == "local":
            return _Way(rest[0])
        if how == "attributes":
            of = self._way(scope, rest[0]).text
            return _Way(f"{of}.__dict__", of)
        if how == "place":
            way = self._way(scope, rest[0])
            return _Way(f"{way.of if way.members else way.text}[{rest[1]}]")
        return _item(self._way(scope, rest[0]), rest[1]) if how == "item" else _Way(variable)


def _item(way: _Way, key: str) -> _Way:
    if way.members and (key.isdigit() or key.isidentifier()):
        return _Way(f"{way.of}[{key}]" if key.isdigit() else f"{way.of}.{key}")
    if way.of and not way.members and key.isidentifier():
        return _Way(f"{way.of}.{key}", *((way.of, key) if key in _MEMBERS else ()))
    return _Way(f"{way.text}[{key!r}]")


def first_failure(
    guard: Callable[[dict[str, Any]], bool], words: Any, frame_locals: dict[str, Any]
) -> Stop | None:
    """Run a guard function and note the last line of it that ran; None if it accepts.

    words: what the bundle says of its lines; None where that was removed, so that nothing can be told
    """
    lines = _Lines(guard.__code__.co_filename)
    before = sys.gettrace()
    sys.settrace(lines.trace)
    try:
        if guard(frame_locals):
            return None
    except Exception as error:
        if raised_by_signal(error):
            raise
        lines.refuse()  # as torch's lookup takes it
    finally:
        sys.settrace(before)
    return Stop(words, lines)


class _Lines:
    """What the lines of a guard function did: its functions in progress, each with its line's number from 0,
    and their variables at each line.

    An object, because a function that traces itself would keep the call's arguments until the garbage
    collector finds the cycle.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._functions: list[tuple[str, int]] = []
        self.last: tuple[list[tuple[str, int]], dict[str, Any]] = ([("guard", 0)], {})
        self.refused: list[tuple[list[tuple[str, int]], dict[str, Any]]] = []
        self.passed = 0
        self._raised = False

    def refuse(self) -> None:
        self.refused.append(self.last)

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename != self._filename:
            return None
        here = code.co_name, max(frame.f_lineno - code.co_firstlineno - 1, 0)
        if event == "call":
            self._functions.append(here)
        elif event == "line" or (event == "exception" and not self._raised):
            self._functions[-1] = here
            self._raised = event == "exception"  # which goes through the functions that called this one, too
            self.passed += event == "line"
            self.last = list(self._functions), dict(frame.f_locals)
        elif event == "return":
            # A part that refused has said why already.
            self._functions.pop()
            if arg is False and self._functions:
                self.refuse()
        return self.trace


WHOLE = True
