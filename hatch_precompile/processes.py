"""Runs the build's own child processes: live output, a time limit, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run_module", "say"]

# Settings of this shell that would change what is captured; a build must not depend on them.
_FOREIGN = (
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "TORCH_COMPILE",
    "TORCH_LOGS",
    "TORCH_TRACE",
    "HATCH_PRECOMPILE",
)


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
        **environment,
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
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
    return Finished(returncode, list(tail), timed_out.is_set())


def say(line: str) -> None:
    """A line from a child to the process that runs it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Compilers the child started are in its process group and must not outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
