"""Kernels start threads where there is enough to do for each, on the machine that they run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hatch_precompile.torch_internals import capture_settings
from tests.conftest import REPOSITORY, Site, made_once
from tests.support import threading_graphs
from tests.support.graphs import save_graph

FEW, MANY = 30, 4000

START = """
import os, pathlib, signal, time
import torch
import probe, threading_graphs
from graphs import load_graph
place = pathlib.Path(probe.argument())
torch.set_num_threads(2)

def threads():
    return len(os.listdir("/proc/self/task"))

answers = []

def started(call, rows):
    before, x = threads(), torch.rand(rows, 4)
    answers.append((x, *call(x=x, size=rows)))
    return threads() - before

def result(**values):
    # Eager code starts threads, too, so it is asked last.
    assert all(torch.allclose(answer, threading_graphs.several(x)) for x, answer in answers)
    probe.result(**values)
"""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "threads", compile_graphs)


def compile_graphs(place: Path) -> None:
    for rows in (FEW, MANY):
        save_graph(place / str(rows), threading_graphs.several, {"x": torch.rand(rows, 4)})
        x = torch.rand(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        save_graph(place / f"any-{rows}", threading_graphs.several, {"x": x})


def run(graphs: Path, code: str) -> Any:
    return Site(REPOSITORY).run(START + code, stdin=str(graphs), HOME=os.devnull).result


@pytest.mark.parametrize("size", [FEW, MANY])
def test_threads_are_started_for_much_work(graphs: Path, size: int) -> None:
    """And only for that, whatever size the graph was built with where that is dynamic."""
    told = run(
        graphs,
        f"""
call = load_graph(place / "any-{size}")
few = started(call, {FEW})
static = started(load_graph(place / "{FEW}"), {FEW})
result(few=few, static=static, many=started(call, {MANY}))
""",
    )
    assert told == {"few": 0, "static": 0, "many": 1}


@pytest.mark.parametrize("name", [f"{FEW}", f"any-{FEW}", f"any-{MANY}"])
def test_a_small_kernel_runs_after_a_fork(graphs: Path, name: str) -> None:
    """OpenMP's threads are not in the child: a region with more than one thread waits there for ever."""
    told = run(
        graphs,
        f"""
call = load_graph(place / "{name}")
started(call, {FEW})
started(load_graph(place / "{MANY}"), {MANY})
child = os.fork()
if child == 0:
    started(call, {FEW})
    os._exit(7)
until = time.monotonic() + 30
pid = 0
while not pid and time.monotonic() < until:
    pid, status = os.waitpid(child, os.WNOHANG)
    time.sleep(0.01)
if not pid:
    os.kill(child, signal.SIGKILL)
result(code=os.waitstatus_to_exitcode(status) if pid else "hangs")
""",
    )
    assert told == {"code": 7}


def test_inductor_is_as_it_was_after_a_capture() -> None:
    from torch._inductor.codegen import cpp

    def now() -> list[Any]:
        return [
            cpp.CppKernel.decide_parallel_depth,
            cpp.CppKernel.codegen_loops_impl,
            cpp.WorkSharing.parallel,
        ]

    before = now()
    with capture_settings({}, 1):
        assert not set(before) & set(now())
    assert now() == before
