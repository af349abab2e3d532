"""Building a project's wheel: the PEP 517 front end `build`, and what our hook tells while it runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hatch_precompile.errors import BuildError
from hatch_precompile.events import VARIABLE, Event, read_events
from hatch_precompile.processes import run_command
from hatch_precompile.wheel.contents import page_path

__all__ = ["Built", "build_wheel"]

# In seconds.
_POLL = 0.1


@dataclass(frozen=True)
class Built:
    """The files a build has made. `report`: the page about it, with `report = true`."""

    wheel: Path
    report: Path | None


def build_wheel(
    project: Path,
    outdir: Path,
    *,
    isolated: bool,
    on_event: Callable[[Event], None],
    on_line: Callable[[str], None],
    python: Path | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Built:
    """Build the wheel of a project into `outdir`, made if it is not there, with all that the build puts
    beside it.

    isolated: in an environment that has what build-system.requires lists, made for this build, else in
    this one. on_event: told what the hook does, from a thread of its own; on_line: every line that is
    printed. python: one that has `build`, to build with; left out, this one. options: more for `build`;
    environment: in place of this process's. Raises BuildError with the hook's sentence, or with the last
    lines where it has none.
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
        # Everything the build leaves behind is in our folder, however it ends.
        temporary = Path(folder, "tmp")
        temporary.mkdir()
        arguments = ["--wheel", "--outdir", str(made), *([] if isolated else ["--no-isolation"])]
        with _following(events, watch):
            returncode, tail = run_command(
                # -P: the project's folder may have a package of this name.
                [python or sys.executable, "-P", "-m", "build", *arguments, *options, project],
                {
                    **(os.environ if environment is None else environment),
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": str(temporary),
                    VARIABLE: str(events),
                },
                on_line,
            )
        if returncode or failure:
            raise BuildError(failure or "\n".join(["the build stopped:", *tail]))
        return _moved(made, outdir)


def _moved(made: Path, outdir: Path) -> Built:
    (wheel,) = made.glob("*.whl")
    outdir.mkdir(parents=True, exist_ok=True)
    moved = {file.name: Path(shutil.move(file, outdir / file.name)) for file in sorted(made.iterdir())}
    return Built(moved[wheel.name], moved.get(page_path(wheel).name))


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
