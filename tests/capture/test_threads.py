"""Kernels start threads where there is enough to do for each, on the machine that they run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hatch_precompile.inductor import capture_settings
from tests.conftest import REPOSITORY, Site, made_once
from tests.support import threading_graphs
from tests.support.graphs import save_graph
from tests.support.threading_graphs import FEW, MANY


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "threads", compile_graphs)


def compile_graphs(place: Path) -> None:
    for rows in (FEW, MANY):
        save_graph(place / str(rows), threading_graphs.several, {"x": torch.rand(rows, 4)})
        x = torch.rand(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        save_graph(place / f"any-{rows}", threading_graphs.several, {"x": x})


def play(scenario: str, graphs: Path, **arguments: str) -> Any:
    site, environment = Site(REPOSITORY), {"HOME": os.devnull}
    return site.play(f"kernel_threads.{scenario}", environment=environment, place=str(graphs), **arguments)


@pytest.mark.parametrize("size", [FEW, MANY])
def test_threads_are_started_for_much_work(graphs: Path, size: int) -> None:
    """And only for that, whatever size the graph was built with where that is dynamic."""
    told = play("started_for_few_and_for_many_rows", graphs, dynamic=f"any-{size}")
    assert told["started"] == {"few": 0, "static": 0, "many": 1}
    assert told["right"]


@pytest.mark.parametrize("name", [f"{FEW}", f"any-{FEW}", f"any-{MANY}"])
def test_a_small_kernel_runs_after_a_fork(graphs: Path, name: str) -> None:
    """OpenMP's threads are not in the child: a region with more than one thread waits there for ever."""
    assert play("a_small_kernel_after_a_fork", graphs, name=name) == {"code": 7, "right": True}


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
