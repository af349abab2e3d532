"""Runs the build's own child processes: live output, a time limit, nothing left behind.

A child leads a process group of its own, with the compilers it starts. The group ends when the child
does, when it is silent for too long, when the build stops, and when the build's own process is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

__all__ = [
    "Finished",
    "end_with_parent",
    "in_parallel",
    "leave_reason",
    "reason_left",
    "run_module",
    "say",
    "stopping_children",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Settings of this shell that would change what is captured; a build must not depend on them.
_FOREIGN = (
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "TORCH_COMPILE",
    "TORCH_LOGS",
    "TORCH_TRACE",
    "ATEN_CPU_CAPABILITY",
    "HATCH_PRECOMPILE",
)

# Where a child finds the pipe that its parent holds the other end of.
_PARENT = "_HATCH_PRECOMPILE_PARENT"

_running: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True)
class Finished:
    """How a child ended. `tail`: the last lines it printed; `timed_out`: it was killed for its silence."""

    returncode: int
    tail: list[str]
    timed_out: bool


def run_module(
    module: str,
    arguments: Sequence[str],
    *,
    paths: Sequence[Path],
    environment: Mapping[str, str],
    inherit: bool,
    quiet_limit: float,
    on_line: Callable[[str], None],
) -> Finished:
    """Run `python -m module` with `paths` importable, handing on each line as it is printed.

    inherit: start from this process's environment (less what would change a capture), else from
    nothing; quiet_limit: seconds without a line after which the child and its children are killed.
    """
    base = (
        {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)} if inherit else {}
    )
    # The child imports this plugin (and what it was installed with) from where this process did.
    search = [*map(str, paths), *(entry for entry in sys.path if entry)]
    env = {
        **base,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(search)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # `-m` would put the working directory before all of these
        "PYTHONHASHSEED": "0",  # sets iterate alike in every build
        # What it imports are the author's files, and setuptools packs the folder it imports them from.
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            env={**env, _PARENT: str(theirs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=(theirs,),
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    _running.add(process)
    tail: deque[str] = deque(maxlen=60)
    timed_out = threading.Event()

    def give_up() -> None:
        timed_out.set()
        _kill_group(process)

    assert process.stdout is not None
    try:
        timer = threading.Timer(quiet_limit, give_up)
        timer.start()
        for line in process.stdout:
            timer.cancel()
            timer = threading.Timer(quiet_limit, give_up)
            timer.start()
            tail.append(line.rstrip("\n"))
            on_line(line.rstrip("\n"))
        returncode = process.wait()
    finally:
        timer.cancel()
        _kill_group(process)
        process.wait()
        _running.discard(process)
        os.close(ours)
    return Finished(returncode, list(tail), timed_out.is_set())


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> list[Result]:
    """What `function` returns for each item, in their order, at most `jobs` at once.

    The first exception, in that order, is raised; children that are still running are killed then, and
    on an interrupt.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            _kill_children()
            while wait(futures, timeout=0.2).not_done:  # one may have been about to start its child
                _kill_children()
            raise


@contextlib.contextmanager
def stopping_children() -> Iterator[None]:
    """While a build runs, SIGTERM ends it like an interrupt: children are killed, folders removed.

    Without effect outside of the main thread, and where the program handles SIGTERM itself.
    """

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with_parent() -> None:
    """Called in a child: kill it, with all that it has started, as soon as its parent is gone."""
    parent = int(os.environ.pop(_PARENT))

    def watch() -> None:
        os.read(parent, 1)  # nothing is ever written: this returns when the other end is closed
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def leave_reason(file: Path, reason: str) -> None:
    """Called in a child that fails for a reason: leave it to the parent in a file."""
    try:
        file.write_text(reason)
    except OSError:  # where nothing can be written, the last lines of its output are all there is
        say(reason)


def reason_left(file: Path, finished: Finished) -> str:
    """What a child that failed has left in a file, or else has said last."""
    try:
        return file.read_text() or "\n".join(finished.tail[-10:])
    except OSError:
        return "\n".join(finished.tail[-10:])


def say(line: str) -> None:
    """A line from a child to the process that runs it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _kill_children() -> None:
    for process in list(_running):
        _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Compilers the child started are in its process group and must not outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
