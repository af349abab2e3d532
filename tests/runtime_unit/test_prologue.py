"""A prologue in whatever code: with somebody to ask, and with nobody."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

prologue: Any = runtime("calling.prologue")
with_prologue = prologue.with_prologue

NAME = "__precompiled_of_a_test"


def made(by: int) -> dict[str, Callable[..., Any]]:
    def plain(x: int) -> int:
        return x + 1

    def with_cells(x: int) -> int:
        return x + by

    def with_own_cells(x: int) -> int:
        return sum(x for _ in range(by))

    def handling(x: int) -> int:
        try:
            return {}[x]  # type: ignore[no-any-return]
        except KeyError:
            try:
                raise ValueError(x)
            except ValueError as error:
                return int(error.args[0])
        finally:
            x += 1

    def in_every_way(x: int, /, *rest: int, more: int = 2, **named: int) -> tuple[Any, ...]:
        return x, rest, more, named

    def with_lines(x: int) -> int:
        """Some of them more than once."""
        for _ in range(2):
            x = (
                x
                + 1
            )  # fmt: skip
        return x

    def in_one_line(x: int) -> int: return x + 1  # fmt: skip

    functions = (plain, with_cells, with_own_cells, handling, in_every_way, with_lines, in_one_line)
    return {each.__name__: each for each in functions}


def prologued(name: str) -> tuple[Any, Any]:
    """A function, and the same with a prologue."""
    function = made(3)[name]
    assert isinstance(function, FunctionType)
    other = FunctionType(
        with_prologue(function.__code__, NAME), {}, None, function.__defaults__, function.__closure__
    )
    other.__kwdefaults__ = function.__kwdefaults__
    return function, other


@pytest.mark.parametrize("name", made(0))
class TestPrologue:
    def test_the_body_runs_where_there_is_nobody_to_ask(self, name: str) -> None:
        function, other = prologued(name)
        assert not hasattr(builtins, NAME)
        assert other(5) == function(5)

    def test_the_body_runs_where_nobody_answers(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[dict[str, Any]] = []
        monkeypatch.setattr(builtins, NAME, asked.append, raising=False)
        function, other = prologued(name)
        assert other(5) == function(5)
        (given,) = asked
        assert given["x"] == 5
        cells = [given[cell] for cell in function.__code__.co_freevars]
        assert cells == list(function.__closure__ or ())
        assert len(given) == len(cells) + (4 if name == "in_every_way" else 1)

    def test_what_answers_runs_instead(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builtins, NAME, lambda given: lambda *args: ("served", *args), raising=False)
        _, other = prologued(name)
        assert other(5) == (("served",) if name == "in_every_way" else ("served", 5))

    def test_what_is_raised_there_is_raised(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def dispatch(given: dict[str, Any]) -> None:
            raise NameError("of an entry")

        monkeypatch.setattr(builtins, NAME, dispatch, raising=False)
        with pytest.raises(NameError, match="of an entry"):
            prologued(name)[1](5)

    @pytest.mark.parametrize("event", ["call", "line", "return"])
    def test_what_a_debugger_raises_is_raised(self, name: str, event: str) -> None:
        """Whether or not there is somebody to ask."""
        _, other = prologued(name)

        class Stopped(Exception):
            pass

        def trace(frame: Any, what: str, argument: Any) -> Any:
            if frame.f_code is other.__code__ and what == event:
                raise Stopped
            return trace

        before = sys.gettrace()
        with pytest.raises(Stopped):
            sys.settrace(trace)
            try:
                other(5)
            finally:
                sys.settrace(before)

    def test_each_line_is_where_it_was(self, name: str) -> None:
        function, other = prologued(name)
        lines = {line for *_, line in function.__code__.co_lines()}
        assert {line for *_, line in other.__code__.co_lines()} - {None} == lines - {None}

    @pytest.mark.parametrize("asked", [False, True])
    def test_each_line_is_met_as_without(
        self, name: str, asked: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if asked:
            monkeypatch.setattr(builtins, NAME, lambda given: None, raising=False)
        without, with_one = (lines_met(function) for function in prologued(name))
        assert with_one == without


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("count", [0, 1, 128, 300])
def test_any_number_of_arguments(count: int, in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """in_turn: as from CPython 3.14 on, whose instruction for a dict of constant keys is gone."""
    if in_turn:
        monkeypatch.setitem(prologue._HERE, "dict", None)
    names = [f"a{number}" for number in range(count)]
    made: dict[str, Any] = {}
    exec(f"def function({', '.join(names)}): return [{', '.join(names)}]", made)
    function = FunctionType(with_prologue(made["function"].__code__, NAME), {})
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(builtins, NAME, asked.append, raising=False)
    for _ in range(20):  # until the interpreter has specialized it
        assert function(*range(count)) == list(range(count))
    assert asked == [dict(zip(names, range(count), strict=True))] * 20
    monkeypatch.setattr(builtins, NAME, lambda given: lambda *given: given)
    assert function(*range(count)) == tuple(range(count))


@pytest.mark.skipif(
    sys.version_info < (3, 14), reason="before Python 3.14 the two sides of a branch have no events"
)
@pytest.mark.parametrize("name", made(0))
def test_each_branch_is_met_as_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By sys.monitoring, as coverage does it."""
    monkeypatch.setattr(builtins, NAME, lambda given: None, raising=False)
    without, with_one = (branches_met(function) for function in prologued(name))
    assert with_one == without


def branches_met(function: Any) -> list[tuple[str, int, int]]:
    """(side, line, line), in a call with 5; what stays on one line is none."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    lines = {place: line for start, end, line in function.__code__.co_lines() for place in range(start, end)}
    met: list[tuple[str, int, int]] = []

    def noting(side: str) -> Callable[..., Any]:
        return lambda code, here, there: met.append((side, lines[here], lines[there]))

    tool = 4
    monitoring.use_tool_id(tool, "a test")
    try:
        for side in ("BRANCH_LEFT", "BRANCH_RIGHT"):
            event = getattr(monitoring.events, side)
            monitoring.register_callback(tool, event, noting(side))
            monitoring.set_local_events(
                tool, function.__code__, monitoring.get_local_events(tool, function.__code__) | event
            )
        function(5)
    finally:
        monitoring.free_tool_id(tool)
    return [each for each in met if each[1] != each[2]]


def lines_met(function: Any) -> list[int]:
    """By its frame, in a call with 5."""
    met: list[int] = []

    def trace(frame: Any, what: str, argument: Any) -> Any:
        if frame.f_code is not function.__code__:
            return None
        if what == "line":
            met.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(5)
    finally:
        sys.settrace(before)
    return met
