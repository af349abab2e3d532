"""The state of a running build, from its events, and how a terminal shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hatch_precompile.events import Event

__all__ = ["Board", "Row", "duration"]


@dataclass
class Row:
    """One entrypoint. `state` is what it waits for or does; seconds are None until known."""

    state: str = "starting"
    sample: int = 0
    samples: int = 0
    graph: int | None = None
    operations: int = 0
    variants: int = 0
    begun: list[str] = field(default_factory=list)
    """The variants of this graph that were begun."""
    entries: int = 0
    graphs: int = 0
    since: float = 0.0
    captured: float | None = None
    unverified: int = 0
    """How many of its variants are left to verify."""
    verifying: float = 0.0
    verified: float | None = None
    differences: list[float] = field(default_factory=list)
    problem: str = ""

    def doing(self) -> str:
        """What it does now, and how far it is."""
        if self.state not in ("capturing", "verifying"):
            return self.state
        parts = [self.state]
        if self.samples:
            parts.append(f"sample {self.sample} of {self.samples}")
        if self.graph is not None:
            parts.append(f"graph {self.graph} ({self.operations} operations)")
            if self.variants > 1 and self.begun:
                parts.append(f"{self.begun[-1]} ({len(self.begun)} of {self.variants} variants)")
        return ", ".join(parts)


class Board:
    """Events in, one row for each entrypoint out. Safe to use from two threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows: dict[str, Row] = {}
        self.expected = 0
        self.status = "preparing the build environment"
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()

    def apply(self, event: Event) -> None:
        with self._lock:
            self.expected = max(self.expected, event.entrypoints)
            if event.entrypoint:
                self._apply_to(self.rows.setdefault(event.entrypoint, Row()), event)

    def _apply_to(self, row: Row, event: Event) -> None:
        if event.step == "start":
            row.state = "capturing" if event.phase == "capture" else "verifying"
            row.since = self._clock()
            row.sample = row.samples = 0
            if event.phase == "verify":
                row.unverified = row.unverified or event.variants or 1
        elif event.step == "sample":
            row.sample, row.samples, row.graph = event.sample, event.samples, None
        elif event.step == "sample-end" and event.difference is not None:
            row.differences.append(event.difference)
        elif event.step == "graph":
            row.graph, row.operations, row.variants = event.graph, event.operations, event.variants
            row.graphs += 1
            row.begun = []
        elif event.step == "variant" and event.variant not in row.begun:
            row.begun.append(event.variant)
        elif event.step == "graph-end":
            row.graph = None
        elif event.step == "failed":
            row.state, row.problem = "left out", event.text
        elif event.step == "end" and event.phase == "capture":
            row.state, row.captured, row.entries = "captured", event.seconds, event.entries
        elif event.step == "end":
            row.verifying += event.seconds or 0.0
            row.unverified = max(row.unverified - 1, 0)
            if not row.unverified:
                row.state, row.verified = "verified", row.verifying

    def problems(self) -> list[str]:
        """Why entrypoints were left out."""
        return [row.problem for row in self.rows.values() if row.problem]

    def left(self) -> str:
        """How much is done, and how much there is to do."""
        captured = sum(row.captured is not None for row in self.rows.values())
        verified = sum(row.verified is not None for row in self.rows.values())
        total = max(self.expected, len(self.rows))
        seconds = self._clock() - self._started
        if not total:
            return f"{self.status}, {duration(seconds)}"
        return f"{captured} of {total} captured, {verified} of {total} verified, {duration(seconds)}"

    def add_rows(self, table: Table, indent: str = "") -> None:
        """A row of the table for each entrypoint: its name, what it does, for how long."""
        with self._lock:
            for name, row in self.rows.items():
                took = row.captured if row.state == "captured" else row.verified
                now = self._clock() - row.since if took is None else took
                table.add_row(indent + name, row.doing(), "" if row.state == "left out" else duration(now))

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        self.add_rows(table)
        return Group(table, Text(self.left()))


def duration(seconds: float) -> str:
    """As a clock shows it: `1:05`."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02}"
