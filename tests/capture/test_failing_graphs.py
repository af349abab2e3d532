"""A graph that fails at the data of a call: the process lives, and an exception comes out of the library.

Without a guard in its kernels an index out of range ends the process (std::terminate), whatever its size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hatch_precompile.inductor.integer_divisions import divisions_are_checked
from tests.conftest import REPOSITORY, Site, made_once
from tests.support import failing
from tests.support.failing import LARGE, SMALL
from tests.support.graphs import save_graph


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "failing", compile_graphs)


def compile_graphs(place: Path) -> None:
    for name, size, requires in (("small", SMALL, None), ("large", LARGE, None), ("scalar", LARGE, ())):
        inputs = failing.lookups_inputs(size)
        assert not save_graph(place / name, failing.lookups, inputs, requires=requires).record.why_python
    w, emb, row = (failing.lookups_inputs(LARGE)[name] for name in ("w", "emb", "row"))
    assert save_graph(place / "python", failing.in_python, {"w": w, "emb": emb, "row": row}).record.why_python
    total = torch.zeros(8)
    changing = save_graph(place / "changing", failing.changing, {"w": w, "row": row, "total": total})
    assert changing.record.changes_inputs
    numbers = torch.arange(LARGE) + 1
    if divisions_are_checked():
        save_graph(place / "divided", failing.divided, {"a": numbers, "b": numbers + 0})
    save_graph(place / "inverse", failing.inverse, {"x": torch.eye(3)})
    save_graph(place / "trained", failing.trained, {"w": w.requires_grad_(), "emb": emb}, grad=True)
    square = {"x": torch.rand(3, 3).requires_grad_(), "w": torch.rand(3, 3).requires_grad_()}
    save_graph(place / "smooth", failing.smooth, square, grad=True)
    save_graph(place / "operated", failing.operated, {"x": torch.zeros(3, 3)})


def play(scenario: str, graphs: Path, threads: int = 1) -> Any:
    environment = {"OMP_NUM_THREADS": str(threads), "HOME": os.devnull}
    return Site(REPOSITORY).play(f"failing_graphs.{scenario}", environment=environment, place=str(graphs))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_out_of_range_in_every_kernel(graphs: Path, threads: int) -> None:
    """Of every size, with vectors and without, near and far, first and last: as eager code raises."""
    told = play("an_index_out_of_range_in_every_kernel", graphs, threads)
    assert told["wrong"] == []
    assert told["tries"] == 3 * 8 * 6 * 4
    assert told["threads"] == threads


@pytest.mark.parametrize("threads", [1, 2])
def test_so_with_kernels_that_python_calls(graphs: Path, threads: int) -> None:
    told = play("an_index_out_of_range_in_kernels_that_python_calls", graphs, threads)
    said = "index out of range in self: it is out of bounds for dimension with size 300"
    assert told["out of range"] == [["GraphFailed", said, True, ["IndexError", said]]] * 2
    assert told["in range"] == [[]]


def test_a_graph_that_writes_to_its_inputs_cannot_be_run_again(graphs: Path) -> None:
    kind, _, rerun, instead = play("a_graph_that_writes_to_its_inputs", graphs)
    assert kind == "GraphFailed"
    assert rerun is False
    assert instead[0] == "IndexError"


@pytest.mark.parametrize("threads", [1, 2])
def test_division_by_zero(graphs: Path, threads: int) -> None:
    """In other threads the same kernels divide by what is not zero."""
    if not divisions_are_checked():
        pytest.skip("this torch compiles no check of a divisor, and a build refuses such a graph")
    told = play("divisions_by_zero", graphs, threads)
    error = ["RuntimeError", "ZeroDivisionError"]
    assert told["eager"][:2] == error
    assert told["by zero"] == [["GraphFailed", "ZeroDivisionError", True, error]] * 50
    assert told["by others"] == [[]] * 50


def test_what_torch_says_of_a_matrix(graphs: Path) -> None:
    told = play("a_matrix_without_an_inverse", graphs)
    if told["ours"] == [] and Version(torch.__version__) < Version("2.13"):
        pytest.skip("this torch leaves the check of a matrix out of what it compiles")
    assert told["ours"][3] == told["eager"][:2]
    assert "linalg.inv" in told["eager"][1]


def test_what_an_operator_implemented_in_python_raises(graphs: Path) -> None:
    """Comes out as it is, so that neither Ctrl-C nor a signal handler's exception is lost."""
    told = play("an_operator_implemented_in_python", graphs)
    assert told["agrees"]
    assert told["ours"] == told["eager"]
    assert [each[0] for each in told["ours"]] == ["ValueError", "KeyboardInterrupt", "_LinAlgError", "Alarm"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forward_that_computes_gradients(graphs: Path, threads: int) -> None:
    """Its backward takes the indices as checked, as eager code's does."""
    kind, _, rerun, _ = play("a_forward_that_computes_gradients", graphs, threads)
    assert kind == "GraphFailed"
    assert rerun is True


def test_a_backward_that_is_run_thrice(graphs: Path) -> None:
    assert play("a_backward_that_is_run_thrice", graphs) == [True, True]


def test_a_second_derivative_names_the_way_out(graphs: Path) -> None:
    kind, said, *_ = play("a_second_derivative", graphs)
    assert kind == "RuntimeError"
    assert 'torch.compiler.set_stance("force_eager")' in said
    assert "HATCH_PRECOMPILE=off" in said


def test_an_output_that_is_changed_before_the_backward(graphs: Path) -> None:
    """As under torch.compile, and in eager code."""
    told = play("an_output_that_is_changed_before_the_backward", graphs)
    assert set(told) == {"ours", "compiled", "eager"}
    for kind, said, *_ in told.values():
        assert kind == "RuntimeError"
        assert "modified by an inplace operation" in said


def test_failures_leave_nothing_behind(graphs: Path) -> None:
    """Neither inputs nor what the graph computed before it failed."""
    grown = play("memory_that_500_failures_leave", graphs)
    assert grown < 20  # MB; a single output of 20,000 rows that stayed each time would be 320
