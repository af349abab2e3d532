"""What is said of a value to tell whether a call with it is traced as another was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hatch_precompile.entrypoints.description import described


def turned(*size: int) -> torch.Tensor:
    return torch.zeros(*reversed(size)).permute(*reversed(range(len(size))))


OTHERS: dict[str, tuple[Any, Any]] = {
    "size": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "strides": (torch.zeros(2, 3), turned(2, 3)),
    "offset": (torch.zeros(4)[1:], torch.zeros(3)),
    "dtype": (torch.zeros(1), torch.zeros(1, dtype=torch.int)),
    "requires_grad": (torch.zeros(1), torch.zeros(1, requires_grad=True)),
    "layout": (torch.zeros(2, 2), torch.zeros(2, 2).to_sparse()),
    "number": (1, 2),
    "type of a number": (1, 1.0),
    "key": ({"a": 1}, {"b": 1}),
    "length": ([1], [1, 1]),
    "member": ({1}, {2}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_decides_is_said(name: str) -> None:
    one, other = OTHERS[name]
    assert described([one]) != described([other])
    assert described([one]) == described([one])
    ours, theirs = SimpleNamespace(inside=one), SimpleNamespace(inside=other)
    assert described(ours, attributes=True) != described(theirs, attributes=True)
    assert described(ours) == described(theirs)


def test_data_is_not() -> None:
    assert described(torch.zeros(2)) == described(torch.ones(2))


def test_what_contains_itself_has_an_end() -> None:
    one, other = SimpleNamespace(size=1), SimpleNamespace(size=2)
    one.itself, other.itself = one, other
    assert described(one, attributes=True) != described(other, attributes=True)
    endless: list[Any] = []
    endless.append(endless)
    assert described(endless) == described(endless)


def test_a_module_is_its_kind_alone() -> None:
    assert described(torch.nn.Linear(2, 3), attributes=True) == described(
        torch.nn.Linear(4, 5), attributes=True
    )
