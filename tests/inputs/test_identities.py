"""Objects that the traced code has told apart or taken for one, where dynamo asks for less than that."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from hatch_precompile.errors import Unsupported
from tests.inputs.asked import rows
from tests.inputs.capturing import captured


def made() -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return x

    return function


FIRST, SECOND = made(), made()
ARRAY, BUFFER = numpy.ones(4), torch.zeros(4)


class Here:
    def method(self) -> float:
        return 1.0


class There:
    pass


def is_it(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there is FIRST else x * 3.0


def equals_it(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there == FIRST else x * 3.0


def has_it(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * {FIRST: 2.0}.get(there, 3.0)


def are_one(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there[0] is there[1] else x * 3.0


def in_keys(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * {Here: 2.0}.get(there, 3.0)


def in_a_set(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there in {Here} else x * 3.0


def in_pairs(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * {(Here, There): 2.0}.get((there, There), 3.0)


def writes_a_cell(x: torch.Tensor, there: Any) -> torch.Tensor:
    there[0]()
    return x * there[1]()


def has_the_buffer(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there.running_mean is BUFFER else x * 3.0


def pair() -> tuple[Callable[[], None], Callable[[], float]]:
    value = 1.0

    def put() -> None:
        nonlocal value
        value = 5.0

    return put, lambda: value


def norm(buffer: Any) -> Any:
    module = torch.nn.BatchNorm1d(4)
    module.running_mean = buffer
    return module


CASES: dict[str, tuple[Any, Callable[[], Any], Callable[[], Any]]] = {
    "is": (is_it, lambda: FIRST, lambda: SECOND),
    "equals": (equals_it, lambda: FIRST, lambda: SECOND),
    "key": (has_it, lambda: FIRST, lambda: SECOND),
    "two functions": (are_one, lambda: (FIRST, FIRST), lambda: (FIRST, SECOND)),
    "arrays": (are_one, lambda: [ARRAY, ARRAY], lambda: [ARRAY, numpy.ones(4)]),
    "class as key": (in_keys, lambda: Here, lambda: There),
    "class in a set": (in_a_set, lambda: Here, lambda: There),
    "class in a tuple": (in_pairs, lambda: Here, lambda: There),
    "cell": (writes_a_cell, pair, lambda: (pair()[0], pair()[1])),
    "buffer": (has_the_buffer, lambda: norm(BUFFER), lambda: norm(torch.zeros(4))),
}


@pytest.mark.parametrize("which", [(1, 2), (2, 1)], ids=["built with one", "built with two"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_object_and_two_are_not_the_same(case: Any, which: tuple[int, int]) -> None:
    call, built, other = case[0], case[which[0]], case[which[1]]
    one = captured(call, rows(), built())
    again = one.loaded()
    one.frame_locals["there"] = built()
    assert again() == ""
    one.frame_locals["there"] = other()
    assert again() != ""


def closure() -> tuple[Any, Any]:
    scale = [2.0]

    def helper() -> float:
        return scale[0]

    def frame(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * there() * scale[0]

    return frame, helper


def test_a_variable_that_the_frame_shares_with_a_function() -> None:
    frame, helper = closure()
    _, another = closure()
    one = captured(frame, rows(), helper)
    again = one.loaded()
    assert again() == ""
    one.frame_locals["there"] = another
    assert again() != ""


@pytest.mark.parametrize("value", [datetime.date(2020, 1, 1), Here().method], ids=["date", "method"])
def test_what_c_code_compares_stops_the_build(value: Any) -> None:
    def compares(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * 2.0 if there.a == there.b else x * 3.0

    with pytest.raises(Unsupported, match="a comparison with an object of"):
        captured(compares, rows(), SimpleNamespace(a=value, b=value))


def counting(own: bool) -> tuple[Any, Any]:
    count, scale = 0, 3.0 if own else 0

    def helper() -> float:
        return count if own else scale

    def frame(x: torch.Tensor, there: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * there()

    return frame, helper


def test_a_variable_that_the_frame_writes_and_may_share() -> None:
    for own in (True, False):  # the other helper's has the same number
        frame, helper = counting(own)
        with pytest.raises(Unsupported, match="the variable 'count', which the traced function writes"):
            captured(frame, rows(), helper)


def test_a_variable_that_the_frame_alone_has() -> None:
    frame, _ = counting(own=True)
    _, another = closure()
    assert captured(frame, rows(), another).loaded()() == ""
