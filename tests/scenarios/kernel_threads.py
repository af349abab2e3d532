"""Threads that single graphs start (tests/support/threading_graphs.py); `place`: where they are."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import threading_graphs
import torch
from graphs import load_graph
from threading_graphs import FEW, MANY

torch.set_num_threads(2)


class _Graphs:
    def __init__(self, place: str) -> None:
        self.place = Path(place)
        self.loaded: dict[str, Callable[..., Any]] = {}
        self.answers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def started(self, name: str, rows: int) -> int:
        """How many threads a call with so many rows starts."""
        if name not in self.loaded:
            self.loaded[name] = load_graph(self.place / name)
        before, x = self._threads(), torch.rand(rows, 4)
        (answer,) = self.loaded[name](x=x, size=rows)
        self.answers.append((x, answer))
        return self._threads() - before

    def _threads(self) -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    def right(self) -> bool:
        """Eager code starts threads, too, so it is asked last."""
        return all(torch.allclose(answer, threading_graphs.several(x)) for x, answer in self.answers)


def started_for_few_and_for_many_rows(place: str, dynamic: str) -> dict[str, Any]:
    """By a graph for any number of rows, and one for few."""
    graphs = _Graphs(place)
    started = {
        "few": graphs.started(dynamic, FEW),
        "static": graphs.started(str(FEW), FEW),
        "many": graphs.started(dynamic, MANY),
    }
    return {"started": started, "right": graphs.right()}


def a_small_kernel_after_a_fork(place: str, name: str) -> dict[str, Any]:
    """How the child ended that runs it, after a larger one has started threads in the parent."""
    graphs = _Graphs(place)
    graphs.started(name, FEW)
    graphs.started(str(MANY), MANY)
    child = os.fork()
    if child == 0:
        graphs.started(name, FEW)
        os._exit(7)
    until = time.monotonic() + 120  # emulated beside other work, all takes long
    pid = status = 0
    while not pid and time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not pid:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status) if pid else "hangs"
    return {"code": code, "right": graphs.right()}
