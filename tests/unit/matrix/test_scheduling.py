"""What happens to cells when builds fail and workers die, on executors that are made for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.project import read_project
from hatch_precompile.matrix.build import build_matrix
from hatch_precompile.matrix.cell import BuiltCell, Task, build_cell
from hatch_precompile.matrix.plan import plan_of
from hatch_precompile.matrix.pools import GivenPool, LocalPool, Pool
from hatch_precompile.matrix.scheduling import TRIES, build_cells
from hatch_precompile.matrix.source import Source
from tests.unit.test_processes import eventually, processes_with

A, B, C = (Cell(python, "2.13.0") for python in ("3.11", "3.12", "3.13"))


def built(cell: Cell) -> BuiltCell:
    return BuiltCell(cell, f"{cell.name}.whl", b"", None, [], 0.0)


class Script(Executor):
    """Answers with what is written down for each cell, try by try; a broken one takes nothing more."""

    def __init__(self, answers: dict[Cell, list[Exception]]) -> None:
        self.answers = answers
        self.begun: list[Cell] = []
        self.broken = False

    def submit(self, function, task):  # type: ignore[no-untyped-def,override]
        if self.broken:
            raise BrokenExecutor("a worker has died")
        assert function is build_cell
        self.begun.append(task.cell)
        future: Future[BuiltCell] = Future()
        future.set_running_or_notify_cancel()
        if self.answers.get(task.cell):
            error = self.answers[task.cell].pop(0)
            self.broken = isinstance(error, BrokenExecutor)
            future.set_exception(error)
        else:
            future.set_result(built(task.cell))
        return future


def play(**answers: list[Exception]) -> tuple[dict[Cell, BuildError], list[Cell], list[Cell], list[str]]:
    """What failed, what was built, what was begun, and what was said."""
    cells = {"a": A, "b": B, "c": C}
    script = {cells[name]: list(errors) for name, errors in answers.items()}
    executors: list[Script] = []

    def make() -> Script:
        executors.append(Script(script))
        return executors[-1]

    done: list[Cell] = []
    said: list[str] = []
    failed = build_cells(
        [Task(cell, Source("", b""), "0") for cell in (A, B, C)],
        GivenPool(make),
        lambda each: done.append(each.cell),
        lambda cell, state, text: said.append(f"{cell.name} {state} {text}".strip()),
    )
    return failed, done, [cell for each in executors for cell in each.begun], said


def test_a_build_that_fails_is_not_repeated_and_the_others_go_on() -> None:
    failed, done, begun, said = play(b=[BuildError("no such word")])
    assert {cell: str(error) for cell, error in failed.items()} == {B: "no such word"}
    assert sorted(done, key=str) == [A, C]
    assert sorted(begun, key=str) == [A, B, C]
    assert f"{B.name} failed no such word" in said


@pytest.mark.parametrize("error", [OSError("connection lost"), BrokenExecutor("killed")])
def test_a_cell_whose_worker_is_lost_is_begun_again(error: Exception) -> None:
    failed, done, begun, said = play(b=[error])
    assert failed == {}
    assert sorted(done, key=str) == [A, B, C]
    assert Counter(begun)[B] == 2
    assert f"{B.name} again its worker was lost: {type(error).__name__}: {error}" in said


@pytest.mark.parametrize("error", [OSError("connection lost"), BrokenExecutor("killed")])
def test_but_not_for_ever(error: Exception) -> None:
    failed, done, begun, _ = play(b=[error] * 9)
    assert sorted(done, key=str) == [A, C]
    assert Counter(begun)[B] == TRIES
    assert str(failed[B]) == f"its worker was lost: {type(error).__name__}: {error} ({TRIES} times)"


def die(_task: Task) -> BuiltCell:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def answer(task: Task) -> BuiltCell:
    return built(task.cell)


class Poisoned:
    """A real pool of two processes, in which one of the cells ends whoever takes it."""

    def __init__(self) -> None:
        self.make = lambda: ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
        self.given = GivenPool(self.make)

    def submit(self, task: Task) -> Future[BuiltCell]:
        given = self.given
        function = die if task.cell == B else answer
        try:
            return given._executor.submit(function, task)
        except BrokenExecutor:
            given._executor = self.make()
            return given._executor.submit(function, task)

    def close(self) -> None:
        self.given.close()

    def cancel(self, run: str) -> None:
        self.given.cancel(run)


def test_what_ends_its_workers_does_not_take_others_with_it() -> None:
    done: list[Cell] = []
    tasks = [Task(cell, Source("", b""), "0") for cell in (A, B, C)]
    failed = build_cells(tasks, Poisoned(), lambda each: done.append(each.cell), lambda *_: None)
    assert list(failed) == [B]
    assert "BrokenProcessPool" in str(failed[B])
    assert sorted(done, key=str) == [A, C]


def wheel_of(project: Path, outdir: Path, pool: Pool, said: list[str]) -> bytes:
    read = read_project(project)
    result = build_matrix(
        read,
        plan_of(read),
        outdir,
        pool=lambda: pool,
        resume=False,
        reuse=None,
        on_state=lambda cell, state, text: said.append(f"{cell.name} {state}"),
        on_line=lambda _: None,
    )
    assert result.failed == {}
    assert result.wheel is not None
    return result.wheel.read_bytes()


def test_a_worker_that_is_killed_changes_nothing_but_the_time(project: Path, tmp_path: Path) -> None:
    mark, started = f"mark-of-{tmp_path.name}-{os.getpid()}", tmp_path / "started"
    (project / "linger-cp312-torch2.13.0").write_text(f"{mark} {started}")

    said: list[str] = []
    context = multiprocessing.get_context("spawn")
    pool = GivenPool(lambda: ProcessPoolExecutor(1, mp_context=context))
    killed: list[int] = []

    def kill() -> None:
        assert eventually(lambda: len(processes_with(mark)) == 1, 120)
        for child in multiprocessing.active_children():
            assert child.pid is not None
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        assert eventually(lambda: processes_with(mark) == [], 30)  # nothing of it goes on without it
        killed.append(0)

    thread = threading.Thread(target=kill)
    thread.start()
    there = wheel_of(project, tmp_path / "there", pool, said)
    thread.join()
    assert len(killed) == 2
    assert killed[-1] == 0
    assert "cp312-torch2.13.0 again" in said
    here = wheel_of(project, tmp_path / "here", LocalPool(2, lambda *_: None, lambda *_: None), [])
    assert there == here


def test_a_worker_of_another_version_is_refused(project: Path) -> None:
    with pytest.raises(
        BuildError, match=r"this worker has hatch-precompile .*, the matrix is built with 0\.0"
    ):
        build_cell(Task(A, Source("", b""), "0", plugin="0.0"))


@pytest.mark.parametrize("name", ["../x.whl", "/tmp/x.whl", "x.txt", "", "a/b.whl", "x\n.whl"])
def test_what_a_worker_calls_its_wheel_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    answer = BuiltCell(A, name, b"", None, [], 0.0)
    with pytest.raises(BuildError, match=r"the worker that built .* calls its wheel"):
        answer.write(tmp_path / "cells")
    assert not (tmp_path / "cells").exists()
