"""Building a project's wheel: the PEP 517 front end `build`, and what our hook tells while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hatch_precompile.errors import BuildError
from hatch_precompile.events import VARIABLE, Event, read_events

__all__ = ["build_wheel"]

_POLL = 0.1  # seconds


def build_wheel(
    project: Path,
    outdir: Path,
    *,
    isolated: bool,
    on_event: Callable[[Event], None],
    on_line: Callable[[str], None],
) -> Path:
    """Build the wheel of a project into `outdir`, made if it is not there. Returns the wheel's file.

    isolated: in an environment that has what build-system.requires lists, made for this build, else in
    this one. on_event: told what the hook does, from a thread of its own; on_line: every line that is
    printed. Raises BuildError with the hook's sentence, or with the last lines where it has none.
    """
    failure = ""

    def watch(event: Event) -> None:
        nonlocal failure
        if event.step == "failed" and not event.entrypoint:
            failure = event.text
        on_event(event)

    with tempfile.TemporaryDirectory(prefix="hatch-precompile-build-") as folder:
        events = Path(folder, "events.jsonl")
        made = Path(folder, "dist")
        arguments = ["--wheel", "--outdir", str(made), *([] if isolated else ["--no-isolation"])]
        with _following(events, watch):
            returncode, tail = _run(
                # -P: the project's folder may have a package of this name.
                [sys.executable, "-P", "-m", "build", *arguments, str(project)],
                {**os.environ, "PYTHONUNBUFFERED": "1", VARIABLE: str(events)},
                on_line,
            )
        if returncode or failure:
            raise BuildError(failure or "\n".join(["the build stopped:", *tail]))
        (wheel,) = made.glob("*.whl")
        outdir.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, outdir / wheel.name))


def _run(
    command: list[str], environment: dict[str, str], on_line: Callable[[str], None]
) -> tuple[int, list[str]]:
    """The command's status and the last lines it printed. It is in this process group, so that an
    interrupt from the keyboard reaches it."""
    tail: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip("\n"))
            on_line(tail[-1])
    return process.returncode, list(tail)


@contextmanager
def _following(path: Path, on_event: Callable[[Event], None]) -> Iterator[None]:
    """Tell of each event as it is appended to the file; of all of them when the block is over."""
    ended = threading.Event()
    done = 0

    def look() -> None:
        nonlocal done
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(done)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        done += len(whole)
        for event in read_events(whole):
            on_event(event)

    def follow() -> None:
        while not ended.wait(_POLL):
            look()

    thread = threading.Thread(target=follow, name="events", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    look()
