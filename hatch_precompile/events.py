"""What a build says while it runs: events, from its child processes to whoever shows them.

A child tells its parent of an event over a pipe of their own, so nothing that the author's code prints can
get between. The build hands each one on as a line of text, and appends it as JSON to the file that the
environment variable HATCH_PRECOMPILE_EVENTS names. `hatch-precompile build` reads that file; other tools may.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from hatch_precompile.errors import BuildError
from hatch_precompile.processes import tell

__all__ = [
    "VARIABLE",
    "Event",
    "collected",
    "emit",
    "emit_failure",
    "printed",
    "read_events",
    "received",
    "send",
]

VARIABLE = "HATCH_PRECOMPILE_EVENTS"

Step = Literal[
    "print", "note", "start", "import", "sample", "sample-end", "graph", "graph-end", "variant",
    "variant-end", "end", "built", "failed",
]  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a build. Samples count from 1, the graphs of an entrypoint from 0, as in the bundle."""

    step: Step
    """What began, or ended. `print`: a line of the author's code. `note`: something the author should know.
    `built`: the bundle is there. `failed`: the build stops, or goes on without the entrypoint it names."""

    text: str = ""
    """The line people read; empty where there is nothing they need to know."""

    phase: Literal["", "capture", "verify"] = ""
    """What the build is doing with the entrypoint; empty for the build as a whole."""

    entrypoint: str = ""
    entrypoints: int = 0
    """With `start`: how many there are."""

    sample: int = 0
    samples: int = 0
    graph: int | None = None
    operations: int = 0
    variant: str = ""
    variants: int = 0
    """With `graph`: for how many variants it is compiled. With `start`: how many are verified."""

    entries: int = 0
    seconds: float | None = None
    """With what ended: how long it took."""

    difference: float | None = None
    """With a verified sample: the largest one from eager, absolute; none where it draws random numbers."""

    time: float = 0.0
    """When the build heard of it, in seconds since the epoch."""


_lock = threading.Lock()
_collections: dict[int, list[Event]] = {}


def send(event: Event) -> None:
    """From a child, to the process that runs it."""
    # A name of a file that is no UTF-8 has characters that JSON cannot have.
    text = event.text.encode("utf-8", "backslashreplace").decode()
    tell(msgspec.json.encode(msgspec.structs.replace(event, text=text)).decode())


def received(message: str) -> Event:
    """What a child has sent."""
    return msgspec.json.decode(message, type=Event)


def printed(line: str) -> Event:
    """A line that the author's code has printed, or something it calls."""
    return Event(step="print", text=line)


@contextlib.contextmanager
def collected() -> Iterator[list[Event]]:
    """The events that are emitted while the block runs."""
    events: list[Event] = []
    _collections[id(events)] = events
    try:
        yield events
    finally:
        del _collections[id(events)]


def emit(event: Event) -> None:
    """Hand an event to who collects them, and append it to the file that HATCH_PRECOMPILE_EVENTS names."""
    event = msgspec.structs.replace(event, time=round(time.time(), 3))
    for events in _collections.values():
        events.append(event)
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = msgspec.json.encode(event) + b"\n"
    try:
        with _lock, Path(path).open("ab") as file:
            file.write(line)
    except OSError as error:
        raise BuildError(f"{VARIABLE}: {path} cannot be written: {error.strerror}") from error


def emit_failure(error: Exception) -> None:
    """Say that the build stops for this error."""
    with contextlib.suppress(BuildError):  # the variable's own file being the reason
        emit(Event(step="failed", text=str(error)))


def read_events(content: bytes) -> Iterator[Event]:
    """The events of whole lines; those that only a later version of the plugin knows are passed over."""
    for line in content.splitlines():
        try:
            yield msgspec.json.decode(line, type=Event)
        except msgspec.DecodeError:
            continue
