"""Runs a guard function line by line, and reads in its source where it stopped and what its variables are.

The source is the readable one that lies beside an entry. Loaded with explanations only.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from .errors import raised_by_signal

__all__ = ["VARIABLE", "Stop", "first_failure"]

VARIABLE = re.compile(r"\bv\d+\b")  # a variable of a guard function
_FUNCTION = re.compile(r"def (\w+)\((\w+)\):")
_CONSTANT = re.compile(r"\bc\d+\b")  # what is found when an entry is loaded
_NOTE = re.compile(r"# (c\d+): (.+)")  # what it is
_CALL = re.compile(r"\b(p\d+)\((v\d+)\)")  # of one of its parts


class _Scope(NamedTuple):
    """One function of a guard's source, as it was called: `p3(v12)` from another scope, or `guard`."""

    name: str
    caller: _Scope | None = None
    argument: str = ""


class Stop(NamedTuple):
    """Where a guard function refused."""

    line: str
    values: dict[str, Any]  # its variables there
    passed: int  # lines that ran before
    source: _Source
    scope: _Scope

    def path(self, variable: str) -> str:
        """How a variable's value is reached, such as `L['self']._modules['a']`."""
        return self.source.path(self.scope, variable)

    def spelled(self, check: str) -> str:
        """A check with its variables as they are reached, and its constants by their names."""
        check = _CONSTANT.sub(lambda match: self.source.constants.get(match[0], match[0]), check)
        return VARIABLE.sub(lambda match: self.path(match[0]), check)


def first_failure(
    guard: Callable[[dict[str, Any]], bool], source: str, frame_locals: dict[str, Any]
) -> Stop | None:
    """Run a guard function and note the last line of it that ran; None if it accepts.

    source: empty where it was removed, so that nothing of it can be told.
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
    frames, values = lines.refused[0] if lines.refused else lines.last
    read = _Source(source)
    return Stop(read.line(frames[-1][1]), values, lines.passed, read, read.scope(frames))


class _Lines:
    """What the lines of a guard function did: its functions in progress, and their variables at each line.

    An object, because a function that traces itself would keep the call's arguments until the garbage
    collector finds the cycle.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._functions: list[tuple[str, int]] = []
        self.last: tuple[list[tuple[str, int]], dict[str, Any]] = ([("guard", 0)], {})
        self.refused: list[tuple[list[tuple[str, int]], dict[str, Any]]] = []
        self.passed = 0

    def refuse(self) -> None:
        self.refused.append(self.last)

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != self._filename:
            return None
        if event == "call":
            self._functions.append((frame.f_code.co_name, frame.f_lineno))
        elif event in ("line", "exception"):
            self._functions[-1] = frame.f_code.co_name, frame.f_lineno
            self.passed += event == "line"
            self.last = list(self._functions), dict(frame.f_locals)
        elif event == "return":
            # A part that refused has said why already.
            self._functions.pop()
            if arg is False and self._functions:
                self.refuse()
        return self.trace


class _Source:
    def __init__(self, text: str) -> None:
        self._lines = [line.strip() for line in text.splitlines()]
        notes = filter(None, map(_NOTE.fullmatch, self._lines))
        self.constants: dict[str, str] = {note[1]: note[2] for note in notes}
        self._functions: dict[str, tuple[str, list[str]]] = {}
        body: list[str] = []
        for line in filter(None, self._lines):
            started = _FUNCTION.fullmatch(line)
            if started:
                body = []
                self._functions[started[1]] = started[2], body
            else:
                body.append(line)

    def line(self, number: int) -> str:
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def scope(self, frames: list[tuple[str, int]]) -> _Scope:
        """The scope of the last of the functions, which called one another in these lines."""
        scope = _Scope(frames[0][0])
        for (_, number), (name, _) in itertools.pairwise(frames):
            call = _CALL.search(self.line(number))
            scope = _Scope(name, scope, call[2] if call else "")
        return scope

    def path(self, scope: _Scope, variable: str) -> str:
        parameter, body = self._functions.get(scope.name, ("", []))
        if variable == parameter and scope.caller is not None:
            return self.path(scope.caller, scope.argument)
        before = ""
        for line in body:
            target, assigned, value = line.partition(" = ")
            if assigned and target == variable:
                return VARIABLE.sub(lambda match: self.path(scope, match[0]), value)
            if assigned and target.startswith("(") and variable in (names := VARIABLE.findall(target)):
                call = _CALL.search(before)
                if call and call[1] in self._functions:
                    # What a part gives is in its last line: `return (v3, v7,)`.
                    given = VARIABLE.findall(self._functions[call[1]][1][-1])
                    return self.path(_Scope(call[1], scope, call[2]), given[names.index(variable)])
            before = line
        return variable


WHOLE = True
