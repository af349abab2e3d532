"""A pool on a Dask cluster: `hatch-precompile[dask]`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import msgspec

from hatch_precompile.backends import built_here, most_demanding
from hatch_precompile.errors import BuildError
from hatch_precompile.events import Event, read_events
from hatch_precompile.matrix.cell import BuiltCell, Task, build_cell
from hatch_precompile.processes import end_commands

__all__ = ["DaskPool"]

_CONNECTING = "20s"


class DaskPool:
    """Cells are built by the workers of a cluster.

    A worker says which processors it is with a resource named like a variant, such as `x86-64-v4=1`: a cell
    goes to one that can run all variants, one cell at a time for each unit. "native" asks for none.
    """

    def __init__(
        self,
        address: str,
        variants: list[str],
        on_begun: Callable[[str], None],
        on_event: Callable[[str, Event], None],
    ) -> None:
        """on_begun, on_event: told of each cell, by its name, from a thread of the client's.

        Raises BuildError where there is no such cluster, or nobody in it can run the variants.
        """
        self._on_begun, self._on_event = on_begun, on_event
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            raise BuildError(
                f"--dask needs {error.name}, which is missing; run: pip install 'hatch-precompile[dask]'"
            ) from error
        try:
            self._client: Any = Client(address, timeout=_CONNECTING, set_as_default=False)
        except (OSError, ValueError) as error:
            raise BuildError(f"no scheduler of Dask answers at {address}: {error}") from error
        resources = dict.fromkeys(most_demanding(built_here(variants)), 1)
        for level in resources:
            self._check_workers(level)
        needed = {"resources": resources} if resources else {}
        self._topic: str | None = None
        self._executor: Executor = self._client.get_executor(pure=False, **needed)

    def _check_workers(self, level: str) -> None:
        """A cluster may grow; but where none of many workers has the resource, it is not known there."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if workers and not any(level in worker["resources"] for worker in workers):
            self._client.close()
            raise BuildError(
                f"none of the {len(workers)} workers says that it can run {level}, which a variant asks for; "
                f'start those that can with: dask worker ... --resources "{level}=1"'
            )

    def submit(self, task: Task) -> Future[BuiltCell]:
        if self._topic is None:
            self._topic = task.run
            self._client.subscribe_topic(task.run, self._hear)
        return self._executor.submit(_build_and_tell, task)

    def _hear(self, message: tuple[float, tuple[str, str]]) -> None:
        _, (cell, told) = message
        if not told:
            self._on_begun(cell)
        for event in read_events(told.encode()):
            self._on_event(cell, event)

    def close(self) -> None:
        self._executor.shutdown()
        self._client.close()

    def cancel(self, run: str) -> None:
        self._executor.shutdown(wait=False)
        # A task of Dask's cannot be stopped from outside; what it runs can.
        self._client.run(_end_commands, run, on_error="ignore")
        self._client.close()


def _build_and_tell(task: Task) -> BuiltCell:
    """On a worker. What it tells goes by way of the scheduler."""
    from distributed import get_worker

    worker = get_worker()

    def tell(event: Event) -> None:
        worker.log_event(task.run, (task.cell.name, msgspec.json.encode(event).decode()))

    worker.log_event(task.run, (task.cell.name, ""))
    return build_cell(task, tell)


def _end_commands(run: str) -> None:
    """On a worker: its thread for messages must not wait until they have ended."""
    threading.Thread(target=end_commands, args=(run,)).start()
