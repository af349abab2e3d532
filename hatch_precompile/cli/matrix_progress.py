"""The state of all cells of a matrix, and how a terminal shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hatch_precompile.cli.progress import Board, duration
from hatch_precompile.config.cells import Cell
from hatch_precompile.events import Event
from hatch_precompile.matrix.scheduling import State

__all__ = ["CellRow", "MatrixBoard"]


@dataclass
class CellRow:
    """One cell. `since`: when it was begun; `took`: None until it ended; `begun`: how often."""

    board: Board
    state: State = "waiting"
    text: str = ""
    begun: int = 0
    since: float | None = None
    took: float | None = None

    def doing(self) -> str:
        """What it does now: also before the first entrypoint, as installing torch takes its time."""
        if self.state == "building" and not self.board.rows:
            return f"building: {self.board.status}"
        return f"{self.state}, {self.text}" if self.state == "built" and self.text else self.state


class MatrixBoard:
    """What happens to cells in, a row for each cell out, with its entrypoints below. Safe to use from several
    threads."""

    def __init__(self, cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = {cell: CellRow(Board(clock)) for cell in cells}
        self.status = ""
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()

    def apply(self, cell: Cell, event: Event) -> None:
        """Something of a cell that is being built."""
        self.rows[cell].board.apply(event)

    def change(self, cell: Cell, state: State, text: str) -> None:
        """What a cell is doing from now on."""
        with self._lock:
            row = self.rows[cell]
            if state == "building":
                row.since, row.begun = self._clock(), row.begun + 1
            elif state == "again":
                row.board = Board(self._clock)
            elif row.since is not None:
                row.took = self._clock() - row.since
            row.state, row.text = state, text

    def left(self) -> str:
        """How much is done, and how much there is to do."""
        done = sum(row.state in ("built", "failed") for row in self.rows.values())
        seconds = duration(self._clock() - self._started)
        if not any(row.begun for row in self.rows.values()) and self.status:
            return f"{self.status}, {seconds}"
        return f"{done} of {len(self.rows)} cells, {seconds}"

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for cell, row in self.rows.items():
                table.add_row(cell.name, row.doing(), self._time(row))
                if row.state == "building":
                    row.board.add_rows(table, indent="  ")
            return Group(table, Text(self.left()))

    def _time(self, row: CellRow) -> str:
        if row.since is None:
            return ""
        return duration(self._clock() - row.since if row.took is None else row.took)
