"""A sample is called in the sizes that need an entry of their own, and what is not served is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

from hatch_precompile.backends import variants_for_this_machine
from hatch_precompile.capture import run_samples, size_cases
from hatch_precompile.capture.entries import Entries
from hatch_precompile.capture.graphs import Graphs
from hatch_precompile.capture.parent import Request
from hatch_precompile.config import load
from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.writer import Memory
from hatch_precompile.records import Capture, GraphRecord

HERE = "tests.capture.test_cases"


def row(low: int | None = None, high: int | None = None, name: str = "batch") -> dict[str, Any]:
    ends = {"min": low, "max": high}
    return {"name": name, **{key: value for key, value in ends.items() if value is not None}}


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def branching(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if 5 < x.shape[0] <= 30 else x * 3


def looping(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(x.shape[1])
    for number in range(x.shape[0]):
        result = result + x[number]
    return result


def in_eights(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0] // 8, 8, x.shape[1])


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).T
    torch._dynamo.graph_break()
    return y.sum(0) * x.shape[0]


def at_most_fifty(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(50, 1)[: x.shape[0]]


def many(x: torch.Tensor) -> torch.Tensor:
    for number in range(x.shape[0] // 4):
        x = x + number
    return x


def printing_if_large(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 30:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
    return x * 2


@torch.compiler.disable
def left_alone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def given_a_tensor(x: torch.Tensor) -> torch.Tensor:
    return left_alone(x * 2) * 3


def given_a_number(x: torch.Tensor) -> torch.Tensor:
    rows = len(left_alone(x * 2))
    return x.new_zeros(2) + rows


def given_eights(x: torch.Tensor) -> torch.Tensor:
    return left_alone(in_eights(x)) * 3


def given_what_it_is_fixed_to(x: torch.Tensor) -> torch.Tensor:
    y = left_alone(x * 2)
    return y * torch.tensor([[2.0] * y.shape[1]] * y.shape[0])


def given_nine(x: torch.Tensor) -> torch.Tensor:
    """Compiled for other sizes than nine alone."""
    y = left_alone(x * 2)
    return printing_if_large(y.repeat(4, 1)) if y.shape[0] == 9 else y * 3


def given_a_row(x: torch.Tensor) -> torch.Tensor:
    """The model itself takes eight rows alone."""
    return left_alone(x.view(8, 4)) * 3


def eight() -> Iterator[Any]:
    yield (torch.ones(8, 4),)


def three() -> Iterator[Any]:
    yield (torch.ones(3, 4),)


def one() -> Iterator[Any]:
    yield (torch.ones(1, 4),)


def both() -> Iterator[Any]:
    yield (torch.ones(8, 4),)
    yield (torch.ones(1, 4),)


def slices() -> Iterator[Any]:
    yield (torch.ones(8, 4),)
    yield (torch.ones(9, 64)[:, :4],)
    yield (torch.ones(9, 50)[:, :7],)


def pair() -> Iterator[Any]:
    yield torch.ones(8, 4), torch.ones(8, 4)


@pytest.fixture
def captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., tuple[Capture, list[str]]]]:
    """Traces a function of this file with nothing compiled, and gives the notes of the capture."""

    def backend(self: Any, graph: Any, inputs: Any) -> Any:
        compiled, number = aot_eager(graph, inputs), len(self.records)
        self.records.append(GraphRecord())
        self.memory.append(Memory((), ()))

        def run(*args: Any) -> Any:
            return compiled(*args)

        run.precompile_graph = number  # type: ignore[attr-defined]
        return run

    monkeypatch.setattr(Graphs, "compiled", backend)
    monkeypatch.setattr(Entries, "compile_guards", lambda self: None)

    def capture(function: Any, samples: Any, **shapes: Any) -> tuple[Capture, list[str]]:
        torch._dynamo.reset()
        table = {
            "target": f"{HERE}:{function.__name__}",
            "samples": f"{HERE}:{samples.__name__}",
            "dynamic-shapes": {
                argument: {"0": dimension, "1": "columns"} for argument, dimension in shapes.items()
            },
        }
        entrypoint = load({"entrypoints": [table]}, default_package="it").entrypoints[0]
        variants = variants_for_this_machine(["native"])
        notes: list[str] = []

        def hear(event: Any) -> None:
            if event.step == "note":
                notes.append(event.text)

        return run_samples.capture(
            Request(entrypoint, "it", ["native"], str(tmp_path)), variants, hear
        ), notes

    yield capture
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("function", "samples", "shape", "entries", "called"),
    [
        (plain, eight, row(0, 16), 3, [0, 1, 16]),
        (plain, one, row(1, 16), 2, [2, 16]),
        (plain, both, row(1, 16), 2, [1, 16]),
        (plain, eight, row(), 1, []),
        (branching, eight, row(1, 64), 4, [1, 2, 31, 64]),
        (branching, eight, row(None, 64), 3, [2, 31, 64]),
        (looping, three, row(1, 4), 4, [1, 2, 4]),
        # Torch 2.15 has a guard of its own that a tensor is not square, and there are four columns.
        (breaking, eight, row(1, 16), 4 if torch.__version__ < (2, 15) else 5, [9, 2, 3, 4, 5, 1, 16]),
    ],
)
def test_it_is_called_where_another_entry_is_needed_and_at_the_ends(
    captured: Any, function: Any, samples: Any, shape: Any, entries: int, called: list[int]
) -> None:
    capture, _ = captured(function, samples, x=shape)
    assert capture.entries == entries
    cases = [dict(each[::2] for each in case.sizes) for case in capture.cases if case.sample == 0]
    assert [case["batch"] for case in cases] == called


def test_a_note_has_the_sizes_the_condition_and_the_line(captured: Any) -> None:
    _, notes = captured(branching, eight, x=row(2, 64))
    assert notes[-1].startswith(
        "sample 1/1 at batch 31: one more entry; batch <= 30 does not hold, at return x * 2 if"
    )
    assert notes[-1].endswith(" in branching")


@pytest.mark.parametrize(
    ("function", "shapes", "said"),
    [
        (in_eights, {"x": row(8, 64)}, "at batch 9: the model itself raises RuntimeError: shape '[1, 8, 4]'"),
        (at_most_fifty, {"x": row(2, 64)}, "at batch 51: the model itself raises RuntimeError: The size of"),
        (
            added,
            {"x": row(2, 64), "y": row(2, 64, "rows")},
            "at batch 2, rows 3: the model itself raises RuntimeError",
        ),
    ],
)
def test_what_the_model_itself_refuses_is_said(captured: Any, function: Any, shapes: Any, said: str) -> None:
    samples = pair if len(shapes) == 2 else eight
    capture, notes = captured(function, samples, **shapes)
    assert capture.entries == 1
    assert any(said in note for note in notes), notes


@pytest.mark.parametrize("shape", [row(2, 64), row()], ids=["a range", "a name"])
def test_a_size_that_the_code_fixes_stops_the_build(captured: Any, shape: Any) -> None:
    with pytest.raises(Unsupported) as caught:
        captured(looping, eight, x=shape)
    said = str(caught.value)
    assert said.startswith("dynamic-shapes.x.0: the code fixes batch to the sample's 8\n  at test_cases.py:")
    assert "in looping" in said


def test_more_entries_than_a_sample_may_have_stop_the_build(
    captured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_cases, "_MOST", 2)
    with pytest.raises(Unsupported) as caught:
        captured(many, eight, x=row(2, 500))
    said = str(caught.value)
    assert said.startswith("dynamic-shapes declares batch 2 to 500, but no entry serves batch ")
    assert "many" in said


def test_what_torch_compile_does_not_take_in_other_sizes_stops_the_build(captured: Any) -> None:
    with pytest.raises(Unsupported) as caught:
        captured(printing_if_large, eight, x=row(2, 64))
    said = str(caught.value)
    assert said.startswith("dynamic-shapes declares batch 2 to 64, but at batch 31 it cannot be compiled: ")
    assert "torch.compile leaves a frame uncompiled" in said


def test_a_slice_is_a_sample_for_all_slices(captured: Any) -> None:
    capture, _ = captured(plain, slices, x=row(2, 64))
    assert [entry.sample for entry in capture.frames[0].entries] == [0, 1]


class TestSizesFromWhatIsNotCompiled:
    @pytest.mark.parametrize("function", [given_a_tensor, given_a_number])
    @pytest.mark.parametrize("shape", [row(2, 64), row(1, 12), row()], ids=["a range", "with one", "a name"])
    def test_they_are_traced_for_any(self, captured: Any, function: Any, shape: Any) -> None:
        capture, notes = captured(function, eight, x=shape)
        *_, behind = capture.frames
        with_one = shape.get("min") == 1
        assert len(behind.entries) == (3 if with_one else 2)
        calls = [{name: size for name, _, size in case.sizes} for case in capture.cases]
        assert calls[:2] == [{"batch": 9, "columns": 5}, {"batch": 10, "columns": 6}]
        assert not [note for note in notes if "misses" in note]

    def test_sizes_near_it_are_those_that_the_model_takes(self, captured: Any) -> None:
        capture, notes = captured(given_eights, eight, x=row(8, 64))
        batches = [size for case in capture.cases for name, _, size in case.sizes if name == "batch"]
        assert batches[0] == 16
        assert not [note for note in notes if "misses" in note]

    def test_where_the_rest_is_fixed_to_them_is_said(self, captured: Any) -> None:
        _, notes = captured(given_what_it_is_fixed_to, eight, x=row())
        assert notes[-1].startswith("sample 1/1 each of 3 calls in other sizes made new entries: ")

    def test_their_entries_are_none_of_those_that_other_sizes_may_need(
        self, captured: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(size_cases, "_MOST", 1)
        captured(given_a_tensor, eight, x=row(1, 64))

    @pytest.mark.parametrize(
        ("shape", "advice"),
        [
            (row(2, 64), "Declare a smaller range"),
            (row(), "Declare the range of sizes that are passed, with min and max"),
        ],
        ids=["a range", "a name"],
    )
    def test_what_torch_compile_does_not_take_stops_the_build(
        self, captured: Any, shape: Any, advice: str
    ) -> None:
        with pytest.raises(Unsupported) as caught:
            captured(given_nine, eight, x=shape)
        said = str(caught.value)
        assert "at batch 9, columns 5 it cannot be compiled: " in said
        assert f"{advice}, or change the code there." in said

    def test_where_none_can_be_tried_is_said(self, captured: Any) -> None:
        _, notes = captured(given_a_row, eight, x=row(8, 9))
        assert "sample 1/1 the model itself raises in sizes near these: " in "\n".join(notes)
