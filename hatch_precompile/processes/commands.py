"""Runs commands of others, such as installers and build front ends: their lines, and an end for each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from hatch_precompile.processes import die_with_parent

__all__ = ["commands_of", "end_commands", "run_command"]

# In seconds.
_POLL = 0.1

_run: ContextVar[str] = ContextVar("_run", default="")
_running: dict[subprocess.Popen[str], str] = {}
_ended: set[str] = set()
_starting = threading.Lock()


def run_command(
    command: Sequence[str | Path], environment: Mapping[str, str], on_line: Callable[[str], None]
) -> tuple[int, list[str]]:
    """The command's status and the last lines it printed. It ends before this does, with all that it has
    started: an exception, such as an interrupt from the keyboard, ends it, and so does the end of this
    process."""
    tail: deque[str] = deque(maxlen=20)
    with _started(command, environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip("\n"))
            on_line(tail[-1])
        return process.wait(), list(tail)


@contextlib.contextmanager
def commands_of(run: str) -> Iterator[None]:
    """What this thread runs while the block lasts can be ended by `end_commands(run)`."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def end_commands(run: str) -> None:
    """End the commands of a run in whatever thread, with all that they have started; it starts no other."""
    with _starting:
        _ended.add(run)
        ending = [process for process, of in _running.items() if of == run]
    for process in ending:
        _end_group(process)


@contextlib.contextmanager
def _started(
    command: Sequence[str | Path], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    ended_with_us = [sys.executable, "-I", "-S", die_with_parent.__file__, *map(str, command)]
    read, write = os.pipe()
    try:
        with _starting:
            if _run.get() in _ended:
                raise InterruptedError("the run that this command is of was ended")
            process = subprocess.Popen(
                ended_with_us,
                env=environment,
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
            )
            _running[process] = _run.get()
        try:
            yield process
        finally:
            _end_group(process)
            del _running[process]
            assert process.stdout is not None
            process.stdout.close()
    finally:
        os.close(read)
        os.close(write)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a command and its descendants: asked first, so that our hook ends what it runs."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + die_with_parent.GRACE
        while time.monotonic() < deadline:
            process.poll()  # or it would be one of its group for as long as nobody has asked for its status
            os.killpg(process.pid, 0)
            time.sleep(_POLL)
    except (ProcessLookupError, PermissionError):  # nobody is left
        pass
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
