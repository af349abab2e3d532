"""A child that a server forks is what `python -m` would have made, but for what is imported already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.processes import Finished, in_parallel, parent, preloaded, run_module
from tests.unit.test_processes import eventually, processes_with

FOLDER = Path(__file__).parent / "processes"
PRELOADED = "wave"  # a module that nothing else imports


@pytest.fixture(params=["python -m", "forked"])
def forked(request: pytest.FixtureRequest) -> Iterator[bool]:
    forks = request.param == "forked"
    with preloaded("witness", PRELOADED, inherit=True) if forks else nullcontext():
        yield forks


def witness(*arguments: str, said: list[Any] | None = None, quiet_limit: float = 60) -> Finished:
    hear = (lambda line: None) if said is None else (lambda line: said.append(json.loads(line)))
    return run_module(
        "witness",
        arguments,
        paths=[FOLDER],
        environment={"ONE_MORE": "ä"},
        inherit=True,
        quiet_limit=quiet_limit,
        on_line=lambda line: None,
        on_message=hear,
    )


def test_it_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")  # which no child is to see
    monkeypatch.chdir(tmp_path)
    plain: list[Any] = []
    forked: list[Any] = []
    assert witness("tell", "0", "a b", said=plain) == Finished(0, [], False)
    with preloaded("witness", PRELOADED, inherit=True):
        for _ in range(2):
            assert witness("tell", "0", "a b", said=forked) == Finished(0, [], False)
    assert [plain[1]["preloaded"], forked[1]["preloaded"], forked[3]["preloaded"]] == [False, True, True]
    assert forked[1]["random"] != forked[3]["random"]
    assert plain[0] == forked[0] == forked[2]
    assert plain[0]["environment"]["ONE_MORE"] == "ä"


def test_it_ends_the_same(forked: bool) -> None:
    assert witness("print", "0") == Finished(0, ["to the one", "to the other"], False)
    assert witness("exit", "3") == Finished(3, [], False)
    failed = witness("raise")
    assert (failed.returncode, failed.tail[-1]) == (1, "KeyError: 'a word'")
    assert witness("kill").returncode == -signal.SIGSEGV
    silent = witness("sleep", quiet_limit=1)
    assert (silent.returncode, silent.timed_out) == (-signal.SIGKILL, True)


def test_several_run_at_once(forked: bool) -> None:
    ended = in_parallel(lambda code: witness("exit", str(code)).returncode, range(12), 6)
    assert ended == list(range(12))


def test_the_first_failure_ends_the_others(forked: bool) -> None:
    def work(seconds: int) -> Finished:
        if not seconds:
            raise ValueError("no")
        return witness("sleep")

    started = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        in_parallel(work, [0, 50, 50], 2)
    assert time.monotonic() - started < 30


def test_without_a_server_children_are_started_one_by_one() -> None:
    """One that is killed, and one that cannot import what it should."""
    said: list[Any] = []
    with preloaded("witness", PRELOADED, inherit=True):
        witness("tell", said=said)
        parent._servers["witness", True]._process.kill()
        witness("tell", said=said)
    with preloaded("witness", "no_such_module", inherit=True):
        witness("tell", said=said)
    assert [each["preloaded"] for each in said[1::2]] == [True, False, False]


def test_a_server_is_for_one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has imported may have read it."""
    said: list[Any] = []
    with preloaded("witness", PRELOADED, inherit=True):
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        witness("tell", said=said)
    assert said[1]["preloaded"] is False


def test_nothing_is_left_of_a_server() -> None:
    with preloaded("witness", PRELOADED, inherit=True):
        witness("exit", "0")
        process = parent._servers["witness", True]._process
        assert process.poll() is None
    assert process.returncode is not None


def test_none_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    mark = f"mark_of_{tmp_path.name}_{os.getpid()}"
    (tmp_path / f"{mark}.py").write_text("")
    front = subprocess.Popen(
        [sys.executable, FOLDER / "preloading.py", mark, FOLDER],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert front.stdout is not None
    assert front.stdout.readline() == "started\n"
    # The front, the server, the process that waits for the child, the child, and the child's own.
    assert eventually(lambda: len(processes_with(mark)) == 5)
    front.kill()
    front.communicate()
    assert eventually(lambda: processes_with(mark) == [])
