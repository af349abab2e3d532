"""The function of a graph's library that takes Python's tensors and numbers as they are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from hatch_precompile.inductor.direct_calls import with_direct_entry
from hatch_precompile.runtime import runtime
from tests.support.graphs import graph_of, save_graph

TABLE = torch.arange(12.0).view(4, 3)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Of (table, number of rows, rows): rows of a table, and as many numbers."""
    place = tmp_path_factory.mktemp("direct")

    def function(table: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table[rows] * 2, rows + rows.shape[0]

    rows = torch.tensor([0, 2, 1])
    torch._dynamo.mark_dynamic(rows, 0)
    save_graph(place, function, {"table": torch.randn(4, 3), "rows": rows})
    return graph_of(place)


def test_it_is_the_librarys_own_function(graph: Callable[..., Any]) -> None:
    assert type(graph).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize("number", [2, torch.tensor(2)])
def test_a_number_is_taken_as_it_is_or_as_a_tensor(graph: Callable[..., Any], number: Any) -> None:
    rows, numbers = graph(TABLE, number, torch.tensor([3, 0]))
    assert rows.tolist() == [[18.0, 20.0, 22.0], [0.0, 2.0, 4.0]]
    assert numbers.tolist() == [5, 2]


def test_subclasses_and_parameters_are_tensors(graph: Callable[..., Any]) -> None:
    class Marked(torch.Tensor):
        pass

    for table in (torch.nn.Parameter(TABLE, requires_grad=False), TABLE.as_subclass(Marked)):
        rows, _ = graph(table, 1, torch.tensor([1]))
        assert type(rows) is torch.Tensor and rows.tolist() == [[6.0, 8.0, 10.0]]


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ((TABLE, 2), TypeError),
        ((TABLE, 2**70, torch.tensor([3, 0])), ValueError),
        ((TABLE, "2", torch.tensor([3, 0])), TypeError),
        ((None, 2, torch.tensor([3, 0])), RuntimeError),
        ((TABLE, 2, torch.tensor([3, 0]), 3), TypeError),
    ],
)
def test_what_it_cannot_take_is_an_error(graph: Callable[..., Any], inputs: Any, error: Any) -> None:
    with pytest.raises(error):
        graph(*inputs)


def test_an_error_of_the_graphs_is_told_as_such(graph: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError) as told:
        graph(TABLE, 1, torch.tensor([9]))
    assert type(told.value).__name__ == "GraphFailed"
    assert (told.value.rerun, type(told.value.instead)) == (True, IndexError)
    assert "out of bounds" in str(told.value.__cause__)


@pytest.mark.parametrize("count", [255, 256, 300])
def test_many_inputs(count: int, tmp_path: Path) -> None:
    """By bytecode as dynamo writes it, with a CALL of them all, until the interpreter specializes that."""

    names = [f"a{number}" for number in range(count)]
    text = f"def function({', '.join(names)}): return {' + '.join(names)}"
    made: dict[str, Any] = {}
    exec(text, made)
    inputs = {name: torch.full((2,), float(number)) for number, name in enumerate(names)}
    save_graph(tmp_path, made["function"], inputs)
    code = runtime("calling.prologue")._Assembler()
    code.add("RESUME")
    code.add("LOAD_GLOBAL", 1)  # a NULL, and the first of the names
    for place in range(1, count + 1):
        code.add("LOAD_GLOBAL", place << 1)
    code.call(count)
    code.add("RETURN_VALUE")
    plain = (lambda: None).__code__
    call = FunctionType(
        plain.replace(co_code=bytes(code), co_names=("graph", *names), co_stacksize=count + 4),
        {"graph": graph_of(tmp_path), **inputs},
    )
    for _ in range(30):
        (added,) = call()
        assert added.tolist() == [float(sum(range(count)))] * 2


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("row", [1, 9])
def test_nothing_is_kept_alive(graph: Callable[..., Any], row: int, uncollected: None) -> None:
    """Whether the call succeeds or fails."""

    def use() -> list[weakref.ref[Any]]:
        inputs = TABLE.clone(), torch.tensor([row])
        try:
            outputs = graph(inputs[0], 1, inputs[1])
        except RuntimeError:
            outputs = []
        return [weakref.ref(each) for each in (*inputs, *outputs)]

    assert [each() for each in use() if each() is not None] == []


def test_it_is_not_there_where_torchs_tensors_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the library is called by handles, as inductor does it."""
    graphs: Any = runtime("graphs.callers")
    asked: list[Any] = []
    monkeypatch.setattr(graphs, "_wrapping_function", lambda: 0)
    assert graphs.direct_caller(asked.append, {}, []) is None
    ((address, probe, _, needs),) = asked
    assert (address, type(probe)) == (0, torch.Tensor)
    assert needs[2:] == (torch.Tensor, torch.nn.Parameter)


def test_a_source_that_is_written_in_another_way_has_no_such_function() -> None:
    source = with_direct_entry("void something_else() {}", 1)
    assert "Py_RETURN_NONE" in source and "THPVariable" not in source
