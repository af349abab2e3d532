"""All cells of a matrix, built by a pool: what happens when one fails, and when a worker dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Literal

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.matrix.cell import BuiltCell, Task
from hatch_precompile.matrix.pools import Pool

__all__ = ["OnState", "State", "build_cells"]

_LOOK = 0.5  # in seconds

TRIES = 3
"""How often a cell is begun whose worker is lost."""

State = Literal["waiting", "building", "built", "failed", "again"]
OnState = Callable[[Cell, State, str], None]


def build_cells(
    tasks: Sequence[Task], pool: Pool, on_done: Callable[[BuiltCell], None], on_state: OnState
) -> dict[Cell, BuildError]:
    """Have each cell built, and say which failed, and why.

    on_done: gets each wheel as it comes; on_state: told what becomes of each cell, with a sentence where
    there is one. A build that fails is not repeated, and the others go on. A cell whose worker is lost is
    begun again. An exception, such as an interrupt, ends all of them.
    """
    work = _Work(pool, on_done, on_state)
    try:
        for task in tasks:
            work.begin(task)
        while work.pending:
            work.look()
            for future in wait(work.pending, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                work.end(future)
            work.go_on()
        pool.close()
    except BaseException:
        for future in work.pending:
            future.cancel()
        pool.cancel(tasks[0].run if tasks else "")
        raise
    return work.failed


class _Work:
    """The cells that are being built."""

    def __init__(self, pool: Pool, on_done: Callable[[BuiltCell], None], on_state: OnState) -> None:
        self.pending: dict[Future[BuiltCell], Task] = {}
        self.failed: dict[Cell, BuildError] = {}
        self._suspects: deque[Task] = deque()
        self._tries: Counter[Cell] = Counter()
        self._running: set[Cell] = set()
        self._pool, self._on_done, self._on_state = pool, on_done, on_state

    def begin(self, task: Task) -> None:
        self._tries[task.cell] += 1
        self.pending[self._pool.submit(task)] = task

    def look(self) -> None:
        """Say which have been begun by now."""
        for future, task in self.pending.items():
            if task.cell not in self._running and future.running():
                self._running.add(task.cell)
                self._on_state(task.cell, "building", "")

    def go_on(self) -> None:
        """Begin again what was running in a pool when that lost a worker."""
        # One of them may be what ends the workers. Alone, it does not take the others with it.
        if not self.pending and self._suspects:
            self.begin(self._suspects.popleft())

    def end(self, future: Future[BuiltCell]) -> None:
        task = self.pending.pop(future)
        self._running.discard(task.cell)
        try:
            built = future.result()
        except BuildError as error:
            self._fail(task.cell, error)
        # Whatever else an executor raises: its worker is gone, or was of no use.
        except Exception as error:
            self._lost(task, error)
        else:
            self._take(task, built)

    def _take(self, task: Task, built: BuiltCell) -> None:
        if built.cell != task.cell:
            self._fail(task.cell, BuildError(f"its worker answered with {built.cell.name}"))
            return
        try:
            self._on_done(built)
        except BuildError as error:
            self._fail(task.cell, error)
            return
        self._on_state(task.cell, "built", "")

    def _lost(self, task: Task, error: Exception) -> None:
        reason = f"its worker was lost: {type(error).__name__}: {error}"
        if self._tries[task.cell] >= TRIES:
            self._fail(task.cell, BuildError(f"{reason} ({TRIES} times)"))
            return
        self._on_state(task.cell, "again", reason)
        if isinstance(error, BrokenExecutor):
            self._suspects.append(task)
        else:
            self.begin(task)

    def _fail(self, cell: Cell, error: BuildError) -> None:
        self.failed[cell] = error
        self._on_state(cell, "failed", str(error))
