"""What the traced code has found and not looked at, and one object that it met in two places."""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hatch_precompile.errors import Unsupported
from tests.inputs import things
from tests.inputs.asked import rows
from tests.inputs.capturing import captured


class Plain:
    pass


class Answering:
    def __getattr__(self, name: str) -> float:
        return 5.0


class Slotted:
    __slots__ = ("gain",)


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def tried(x: torch.Tensor, there: Any) -> torch.Tensor:
    try:
        there.gain  # noqa: B018
    except AttributeError:
        return x * 3.0
    return x * 2.0


def bound(x: torch.Tensor, there: Any) -> torch.Tensor:
    gain = there.gain  # noqa: F841
    return x * 2.0


def handed_on(x: torch.Tensor, there: Any) -> torch.Tensor:
    return second(there.gain, x * 2.0)


def second(_first: Any, other: Any) -> Any:
    return other


def in_a_list(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * len([there.gain])


def by_operator(x: torch.Tensor, there: Any) -> torch.Tensor:
    operator.attrgetter("gain")(there)
    return x * 2.0


def in_its_dict(x: torch.Tensor, there: Any) -> torch.Tensor:
    try:
        there.__dict__["gain"]
    except KeyError:
        return x * 3.0
    return x * 2.0


GAIN = 1.0


def of_the_module(x: torch.Tensor, there: Any) -> torch.Tensor:
    try:
        GAIN  # noqa: B018
    except NameError:
        return x * 3.0
    return x * 2.0


WAYS = [tried, bound, handed_on, in_a_list, by_operator]
VALUES = [1.0, None, [1.0], torch.ones(2), Plain, len]


def removed(call: Callable[..., Any], there: Any, remove: Callable[[], Any]) -> str:
    """What the guard says when something is gone; it has accepted what was there."""
    again = captured(call, rows(), there).loaded()
    assert again() == ""
    remove()
    return again()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("kind", [Plain, Answering, Slotted, Model, types.SimpleNamespace])
def test_an_attribute_has_to_be_there_whatever_it_is(kind: Any, value: Any) -> None:
    there = kind()
    there.gain = value
    assert removed(tried, there, lambda: delattr(there, "gain")) != ""


@pytest.mark.parametrize("call", [*WAYS, in_its_dict])
@pytest.mark.parametrize("kind", [Plain, Answering, Model])
def test_however_it_was_found(call: Any, kind: Any) -> None:
    there = kind()
    there.gain = [1.0]
    assert removed(call, there, lambda: delattr(there, "gain")) != ""


@pytest.mark.parametrize(
    "made", [lambda: torch.nn.Linear(2, 2), lambda: torch.nn.Parameter(torch.ones(2)), lambda: None]
)
def test_what_a_module_has_registered(made: Any) -> None:
    there = Model()
    if (value := made()) is None:
        there.register_buffer("gain", torch.ones(2))
    else:
        there.gain = value
    assert removed(tried, there, lambda: delattr(there, "gain")) != ""


@pytest.mark.parametrize("holder", [Plain, things, second])
@pytest.mark.parametrize("call", WAYS)
def test_what_a_class_a_module_or_a_function_has(holder: Any, call: Any) -> None:
    holder.gain = 1.0
    assert removed(call, holder, lambda: delattr(holder, "gain")) != ""


class Kind(type):
    pass


class OfKind(metaclass=Kind):
    pass


class Derived(Plain):
    pass


class Mode(enum.Enum):
    ONE = 1.0
    TWO = 2.0


@pytest.mark.parametrize("values", [(1.0, 2.0), (None, 1.0), (Mode.ONE, Mode.TWO)])
@pytest.mark.parametrize(
    ("holder", "there"),
    [(Plain, Plain), (Plain, Derived), (Plain, Plain()), (OfKind, OfKind), (Kind, OfKind)],
)
def test_the_value_that_a_class_has(holder: Any, there: Any, values: tuple[Any, Any]) -> None:
    def asked(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * 2.0 if there.gain == values[0] else x * 3.0

    holder.gain = values[0]
    try:
        assert removed(asked, there, lambda: setattr(holder, "gain", values[1])) != ""
    finally:
        del holder.gain


@pytest.mark.parametrize("value", [1.0, lambda self: 1.0], ids=["value", "method"])
def test_what_only_the_class_of_an_object_has(value: Any) -> None:
    Plain.gain = value  # type: ignore[attr-defined]
    assert removed(tried, Plain(), lambda: delattr(Plain, "gain")) != ""


def test_a_global() -> None:
    own = of_the_module.__globals__
    try:
        assert removed(of_the_module, None, lambda: own.pop("GAIN")) != ""
    finally:
        own["GAIN"] = 1.0


def test_what_is_looked_at_needs_no_second_check() -> None:
    def scaled(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * there.gain

    def found_too(x: torch.Tensor, there: Any) -> torch.Tensor:
        there.gain  # noqa: B018
        return x * there.gain

    there = Plain()
    there.gain = 2.0  # type: ignore[attr-defined]
    one, two = (captured(call, rows(), there).data["guard"] for call in (scaled, found_too))
    assert [code.co_code for code in one] == [code.co_code for code in two]


def test_below_an_iterator() -> None:
    def each(x: torch.Tensor, there: Any) -> torch.Tensor:
        for one in there:
            one.gain  # noqa: B018
        return x * 2.0

    there = Plain()
    there.gain = [1.0]  # type: ignore[attr-defined]
    with pytest.raises(Unsupported, match="tuple_iterator"):
        captured(each, rows(), iter((there,)))


def test_text_that_the_trace_has_made_is_from_nowhere() -> None:
    def said(x: torch.Tensor, there: Any) -> torch.Tensor:
        text = f"{x.shape[0]}"  # noqa: F841
        return x * 2.0

    x = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    assert captured(said, x, None).loaded()() == ""


HERE, ITEMS, NAMED, WEIGHT = Plain(), [1.0], {"a": 1.0}, torch.ones(4)
LAYER = torch.nn.Linear(4, 4)


def is_the_same(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there is HERE else x * 3.0


def is_equal(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there == HERE else x * 3.0


def is_among(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there in [HERE] else x * 3.0


def is_the_list(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there is ITEMS else x * 3.0


def writes_the_dict(x: torch.Tensor, there: Any) -> torch.Tensor:
    there["b"] = 1.0
    return x * len(NAMED)


def is_the_tensor(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there is WEIGHT else x * 3.0


def takes_both(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x.sum() * there + WEIGHT


def calls_both(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x.sum() * there.weight + LAYER.weight


TWICE: list[tuple[Any, Any, Callable[[], Any]]] = [
    *((call, HERE, Plain) for call in (is_the_same, is_equal, is_among)),
    (is_the_list, ITEMS, lambda: [1.0]),
    (writes_the_dict, NAMED, lambda: {"a": 1.0}),
    *((call, WEIGHT, lambda: torch.ones(4)) for call in (is_the_tensor, takes_both)),
    (calls_both, LAYER, lambda: torch.nn.Linear(4, 4)),
]


@pytest.mark.parametrize(("call", "there", "another"), TWICE, ids=[call.__name__ for call, _, _ in TWICE])
def test_an_argument_that_was_a_global_too_has_to_be_that(call: Any, there: Any, another: Any) -> None:
    """One variable of dynamo's stands for both, in the graph as well."""
    one = captured(call, rows(), there)
    again = one.loaded()
    NAMED.pop("b", None)
    assert again() == ""
    one.frame_locals["there"] = another()
    assert again() != ""
