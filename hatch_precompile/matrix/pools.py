"""Where the cells of a matrix are built: here, or wherever an executor takes them."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import ConfigError
from hatch_precompile.events import Event
from hatch_precompile.matrix.cell import BuiltCell, Task, build_cell
from hatch_precompile.processes import end_commands

__all__ = ["GivenPool", "LocalPool", "Pool", "executor_factory"]

# In seconds: for workers that were asked to end, and their commands.
_ENDING = 30.0

OnEvent = Callable[[Cell, Event], None]
OnLine = Callable[[Cell, str], None]


class Pool(Protocol):
    """What builds cells."""

    def submit(self, task: Task) -> Future[BuiltCell]:
        """Have a cell built; of a pool whose workers have died, by new ones."""

    def close(self) -> None:
        """Called when every cell has been built."""

    def cancel(self, run: str) -> None:
        """End what is being built of a run; futures that have not begun are cancelled already."""


class LocalPool:
    """Cells are built on this machine, `jobs` at a time. Each build is processes of its own."""

    def __init__(self, jobs: int, on_event: OnEvent, on_line: OnLine) -> None:
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="cell")
        self._on_event = on_event
        self._on_line = on_line

    def submit(self, task: Task) -> Future[BuiltCell]:
        return self._threads.submit(
            build_cell,
            task,
            lambda event: self._on_event(task.cell, event),
            lambda line: self._on_line(task.cell, line),
        )

    def close(self) -> None:
        self._threads.shutdown()

    def cancel(self, run: str) -> None:
        self._threads.shutdown(wait=False)
        end_commands(run)
        self._threads.shutdown()


class GivenPool:
    """Cells are built by an executor of somebody else's, which gets functions and bytes alone."""

    def __init__(self, factory: Callable[[], Executor]) -> None:
        self._factory = factory
        self._executor = factory()

    def submit(self, task: Task) -> Future[BuiltCell]:
        try:
            return self._executor.submit(build_cell, task)
        except BrokenExecutor:  # one that has lost a worker takes nothing more
            self._executor.shutdown(wait=False)
            self._executor = self._factory()
            return self._executor.submit(build_cell, task)

    def close(self) -> None:
        self._executor.shutdown()

    def cancel(self, run: str) -> None:
        self._executor.shutdown(wait=False)
        end_commands(run)  # those of an executor of threads
        for child in multiprocessing.active_children():
            child.terminate()
        deadline = time.monotonic() + _ENDING
        for child in multiprocessing.active_children():
            child.join(max(deadline - time.monotonic(), 0))
            child.kill()


def executor_factory(reference: str) -> Callable[[], Executor]:
    """What makes the executor that `module:factory` names; modules of the working directory come first.

    Raises ConfigError where there is no such factory, from it where what it makes is no executor.
    """
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConfigError(f'--executor: expected a reference like "module:factory", got "{reference}"')
    sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--executor: {reference} cannot be imported: {error}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(Path.cwd()))

    def make() -> Executor:
        try:
            executor = factory()
        except Exception as error:
            raise ConfigError(f"--executor: {reference} raised {type(error).__name__}: {error}") from error
        if not isinstance(executor, Executor):
            raise ConfigError(
                f"--executor: expected {reference} to return a concurrent.futures.Executor, "
                f"got {type(executor).__name__}"
            )
        return executor

    return make
