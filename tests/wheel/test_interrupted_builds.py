"""A build that is ended while a compiler runs: no process, no wheel, nothing in the tree."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TESTS
from tests.wheel.conftest import Built

# Once it is to compile something it says so, and never ends.
COMPILER = """#!/bin/sh
case "$*" in *.cpp*) touch "$0.started"; exec tail -f "$0" ;; esac
exec g++ "$@"
"""


def processes_below(folder: Path) -> list[str]:
    """The command lines of processes that work in a folder, or have been told of something there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((process / name).read_bytes() for name in ("cmdline", "environ"))
            works_in = (process / "cwd").readlink()
        except OSError:
            continue  # it has ended
        if str(folder).encode() in command + environment or works_in.is_relative_to(folder):
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_build_that_is_ended(
    built: Built, tmp_path: Path, number: signal.Signals
) -> None:
    project, out, temporary = tmp_path / "project", tmp_path / "out", tmp_path / "temporary"
    shutil.copytree(TESTS / "kiosk", project, ignore=shutil.ignore_patterns("__pycache__"))
    temporary.mkdir()
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    before = set(project.rglob("*"))
    front = subprocess.Popen(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=project,
        env={
            **os.environ,
            "CXX": str(compiler),
            "PYTHONPATH": str(built.plugin),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(temporary),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(compiler.with_suffix(".started").exists, 240)
        # The build, the two servers, what waits for the capture, the capture, the compiler.
        assert len(processes_below(tmp_path)) >= 6
    finally:
        front.send_signal(number)
        code = front.wait(60)
    assert eventually(lambda: processes_below(tmp_path) == [], 30)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert list(out.glob("*")) == []
    assert set(project.rglob("*")) == before
    if number == signal.SIGTERM:
        assert list(temporary.iterdir()) == []
