"""Where `dynamic-shapes` finds the tensors whose sizes may differ."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.entrypoints import dynamic
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.finding import find_target
from hatch_precompile.errors import CaptureError


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass
class Layer:
    keys: torch.Tensor | None


def asked(x: Any, cache: Any = None, **more: Any) -> None: ...


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], int]]:
    """The sizes of each tensor that was marked, and the dimension."""
    found: list[tuple[tuple[int, ...], int]] = []
    monkeypatch.setattr(dynamic, "mark_range", lambda x, index, *_: found.append((tuple(x.shape), index)))
    monkeypatch.setattr(dynamic, "mark_static", lambda x, index: found.append((tuple(x.shape), -1)))
    return found


def mark(name: str, index: int, *args: Any, **kwargs: Any) -> None:
    entrypoint = Entrypoint(
        target=f"{__name__}:asked",
        samples="a:b",
        name="it",
        dynamic_shapes={name: {index: Dimension("size")}},
    )
    dynamic.mark_dynamic(entrypoint, find_target(entrypoint), Sample(args, kwargs))


def tensor(*size: int) -> torch.Tensor:
    return torch.zeros(*size)


CASES = {
    "x": (tensor(2, 3), [((2, 3), 1)]),
    "x.*": ([tensor(2, 4), tensor(2, 5)], [((2, 4), 1), ((2, 5), 1)]),
    "x.1": ((tensor(2, 4), tensor(2, 5)), [((2, 5), 1)]),
    "x.second": (Pair(tensor(2, 4), tensor(2, 5)), [((2, 5), 1)]),
    "x.words": ({"words": tensor(2, 6), "other": 1}, [((2, 6), 1)]),
    "x.*.0": ({"one": [tensor(2, 6)], "two": [tensor(2, 7)]}, [((2, 6), 1), ((2, 7), 1)]),
    "x.layers.*.keys": (
        SimpleNamespace(layers=[Layer(tensor(2, 8)), Layer(None), Layer(tensor(2, 1))]),
        [((2, 8), 1), ((2, 1), -1)],
    ),
    "x.layers.0.keys": (SimpleNamespace(layers=[]), []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_path_leads_to_tensors(name: str, marked: list[Any]) -> None:
    value, expected = CASES[name]
    mark(name, 1, value)
    assert marked == expected


def test_an_argument_that_a_sample_leaves_out_has_none(marked: list[Any]) -> None:
    mark("cache.keys", 1, tensor(2, 2))
    mark("anything.keys", 1, tensor(2, 2))  # it takes any keyword
    mark("cache.keys", 1, tensor(2, 2), None)
    assert marked == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "x",
            [1],
            "dynamic-shapes.x: the sample has an object of list, not a tensor; "
            'a way to the tensors in it is one key, as "x.*"',
        ),
        ("x.keys", Layer(7), 'dynamic-shapes."x.keys": the sample has an object of int, not a tensor'),  # type: ignore[arg-type]
        ("x.values", Layer(None), "dynamic-shapes.\"x.values\": a Layer has no 'values'"),
        ("x.first", [tensor(2)], "dynamic-shapes.\"x.first\": a list has no 'first'"),
        ("x.keys", {"a": 1}, "dynamic-shapes.\"x.keys\": a dict has no 'keys'"),
        ("x.*", tensor(2, 3), "dynamic-shapes.\"x.*\": a Tensor has no '*'"),
        ("x.0", tensor(2), "dynamic-shapes.\"x.0\": a Tensor has no '0'"),
    ],
)
def test_a_path_that_leads_nowhere(name: str, value: Any, said: str) -> None:
    with pytest.raises(CaptureError) as caught:
        mark(name, 1, value)
    assert str(caught.value) == said


def test_a_dimension_that_is_not_there() -> None:
    with pytest.raises(CaptureError, match=r'dynamic-shapes."x.0".2: the sample has 2 dimensions'):
        mark("x.0", 2, [tensor(2, 2)])
