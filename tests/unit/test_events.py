"""Events: from a build's children to a file, and from there to what a terminal shows."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.console import Console

from hatch_precompile.cli.progress import Board
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.events import VARIABLE, Event, emit, emit_failure, read_events, received
from hatch_precompile.processes import run_module

FOLDER = Path(__file__).parent / "events"


def test_what_the_author_prints_loses_no_event() -> None:
    lines: list[str] = []
    events: list[Event] = []
    finished = run_module(
        "progress",
        [],
        paths=[FOLDER],
        environment={},
        inherit=True,
        quiet_limit=60,
        on_line=lines.append,
        on_message=lambda message: events.append(received(message)),
    )
    assert (finished.returncode, finished.timed_out) == (0, False), lines
    assert [(event.sample, event.text) for event in events] == [
        (number, "half a line: ½ \\udc80") for number in (1, 2, 3)
    ]
    assert finished.tail == lines
    descriptors = lines.pop(4)
    assert lines == [
        "  50%|#####     ",
        "100%|##########",
        '::{"step": "sample"}',
        '{"step": "sample"}',
        "this process has no parent to tell",
    ]
    # Of the author's own processes none can write there: 3 is the listing itself.
    assert sorted(ast.literal_eval(descriptors)) == ["0", "1", "2", "3"]


class TestFile:
    def test_events_are_appended_with_their_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "events"))
        emit(Event(step="start", entrypoint="a"))
        emit(Event(step="end", entrypoint="a"))
        content = (tmp_path / "events").read_bytes()
        events = list(read_events(b'{"step": "of a later version"}\n' + content))
        assert [event.step for event in events] == ["start", "end"]
        assert 0 < events[0].time <= events[1].time

    def test_without_the_variable_nothing_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)
        emit(Event(step="start"))

    def test_a_file_that_cannot_be_written_is_an_error_that_names_the_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, str(tmp_path))
        with pytest.raises(BuildError, match=rf"^{VARIABLE}: .* cannot be written: Is a directory$"):
            emit(Event(step="start"))
        emit_failure(ConfigError("the error that is being reported"))


def board(*events: Event) -> Board:
    made = Board(clock=lambda: 0.0)
    for event in events:
        made.apply(event)
    return made


def shown(made: Board) -> str:
    output = io.StringIO()
    Console(file=output, width=120).print(made)
    return output.getvalue()


START = Event(step="start", phase="capture", entrypoint="encoder", entrypoints=2)
SAMPLE = Event(step="sample", phase="capture", entrypoint="encoder", sample=2, samples=3)
GRAPH = Event(step="graph", phase="capture", entrypoint="encoder", graph=1, operations=40, variants=2)
V3 = Event(step="variant", phase="capture", entrypoint="encoder", variant="x86-64-v3")
V4 = Event(step="variant", phase="capture", entrypoint="encoder", variant="x86-64-v4")
END = Event(step="end", phase="capture", entrypoint="encoder", entries=3, seconds=65.0)


class TestBoard:
    def test_before_the_hook_runs_it_shows_what_the_front_end_does(self) -> None:
        assert shown(board()).strip() == "preparing the build environment, 0:00"

    @pytest.mark.parametrize(
        ("events", "text"),
        [
            ([START], "capturing"),
            ([START, SAMPLE], "capturing, sample 2 of 3"),
            ([START, SAMPLE, GRAPH], "capturing, sample 2 of 3, graph 1 (40 operations)"),
            (
                [START, SAMPLE, GRAPH, V3, V4],
                "capturing, sample 2 of 3, graph 1 (40 operations), x86-64-v4 (2 of 2 variants)",
            ),
            ([START, SAMPLE, GRAPH, Event(step="graph-end", entrypoint="encoder")], "sample 2 of 3"),
            ([START, END], "captured"),
            ([START, END, Event(step="start", phase="verify", entrypoint="encoder")], "verifying"),
            ([START, Event(step="failed", entrypoint="encoder", text="WARNING: no")], "left out"),
        ],
    )
    def test_a_row_says_what_is_being_done(self, events: list[Event], text: str) -> None:
        made = board(*events)
        assert made.rows["encoder"].doing().endswith(text)
        assert made.rows["encoder"].doing() in shown(made)

    def test_an_entrypoint_is_verified_when_each_of_its_variants_is(self) -> None:
        start = Event(step="start", phase="verify", entrypoint="encoder", variants=2)
        end = Event(step="end", phase="verify", entrypoint="encoder", seconds=1.5)
        made = board(START, END, start, start, end)
        assert (made.rows["encoder"].state, made.rows["encoder"].verified) == ("verifying", None)
        made.apply(end)
        assert (made.rows["encoder"].state, made.rows["encoder"].verified) == ("verified", 3.0)

    def test_the_last_line_says_what_is_left(self) -> None:
        verified = Event(step="end", phase="verify", entrypoint="encoder", seconds=1.0)
        assert shown(board(START)).splitlines()[-1].strip() == "0 of 2 captured, 0 of 2 verified, 0:00"
        assert "1 of 2 captured, 0 of 2 verified" in shown(board(START, END))
        assert "1 of 2 captured, 1 of 2 verified" in shown(board(START, END, verified))
        assert "encoder  captured  1:05" in shown(board(START, END))
