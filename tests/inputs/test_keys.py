"""What the traced code asks dicts for. Of one of a class derived from dict that is asked for single keys,
what else it has is no matter, as where it is a registry; whoever goes through it is refused where it has
others or another order."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.inputs.asked import rows
from tests.inputs.capturing import Captured, captured


class Registry(dict[Any, Any]):
    """Finds its entries by the name of a class, as transformers' registry of models does."""

    def of(self, value: object) -> Any:
        return super().get(type(value).__name__) or 2.0


def of_a_tensor(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * table.of(x)


def by_get(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * table.get("Tensor", 1.0)


def by_item(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * table["Tensor"]


def by_in(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * 3.0 if "Tensor" in table and "Other" not in table else x


def of_a_list(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * table["numbers"][1]


def not_there(x: torch.Tensor, table: Registry) -> torch.Tensor:
    try:
        return x * table["Other"]
    except KeyError:
        return x * table.get("Third", 4.0)


def refused(call: Any, change: Callable[[Registry], Any], *given: Any) -> str:
    """What the guard says after a change; it has accepted the table as it was."""
    one = given[0] if given else made(call)
    again = one.loaded()
    one.frame_locals["table"] = table()
    assert again() == ""
    change(one.frame_locals["table"])
    return again()


def table() -> Registry:
    return Registry({"Tensor": 3.0, "numbers": [1.0, 2.0]})


def made(call: Any) -> Captured:
    return captured(call, rows(), table())


def another(found: Registry) -> None:
    found["more"] = 5.0


def before_all(found: Registry) -> None:
    kept = dict(found)
    found.clear()
    found.update({"more": 5.0, **dict(reversed(kept.items()))})


def only_there(x: torch.Tensor, table: Any) -> torch.Tensor:
    try:
        table["Tensor"]
    except KeyError:
        return x * 3.0
    return x * 2.0


BY_KEY = [of_a_tensor, by_get, by_item, by_in, of_a_list, not_there, only_there]


@pytest.mark.parametrize("call", BY_KEY)
@pytest.mark.parametrize("change", [another, before_all])
def test_other_keys_are_no_matter_to_who_asks_for_one(call: Any, change: Any) -> None:
    assert refused(call, change) == ""


CHANGES: dict[str, tuple[Any, Callable[[Registry], Any]]] = {
    "value": (of_a_tensor, lambda found: found.update(Tensor=5.0)),
    "gone": (of_a_tensor, lambda found: found.pop("Tensor")),
    "value-got": (by_get, lambda found: found.update(Tensor=5.0)),
    "gone-got": (by_get, lambda found: found.pop("Tensor")),
    "value-of-item": (by_item, lambda found: found.update(Tensor=5.0)),
    "another-type": (by_item, lambda found: found.update(Tensor=3)),
    "gone-item": (by_item, lambda found: found.pop("Tensor")),
    "not-in": (by_in, lambda found: found.pop("Tensor")),
    "now-in": (by_in, lambda found: found.update(Other=1.0)),
    "below": (of_a_list, lambda found: found["numbers"].__setitem__(1, 5.0)),
    "other-list": (of_a_list, lambda found: found.update(numbers=[1.0, 5.0])),
    "only-there": (only_there, lambda found: found.pop("Tensor")),
    "now-there": (not_there, lambda found: found.update(Other=1.0)),
    "now-got": (not_there, lambda found: found.update(Third=1.0)),
}


@pytest.mark.parametrize(("call", "change"), CHANGES.values(), ids=CHANGES)
def test_what_was_asked_for_has_to_be_as_it_was(call: Any, change: Any) -> None:
    assert refused(call, change) != ""


def goes_through(x: torch.Tensor, table: Registry) -> torch.Tensor:
    for key in table:
        x = x * len(key)
    return x


def all_values(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * sum(1 if type(value) is float else 2 for value in table.values())


def all_items(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * sum(len(key) for key, _ in table.items())


def keys_alone(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(table.keys())


def as_list(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(list(table))


def first(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(next(iter(table)))


def ordered(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(sorted(table)[0])


def length(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(table)


def length_and_key(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * table["Tensor"] * len(table)


def as_dict(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(dict(table))


def unpacked(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len({**table})


def as_keywords(x: torch.Tensor, table: Registry) -> torch.Tensor:
    def inner(**given: Any) -> int:
        return len(given)

    return x * inner(**table)


def copied(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(table.copy())


def joined(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(table | {"a": 1})


def compared(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * 2.0 if table == {"Tensor": 3.0} else x * 3.0 * len(table)


def in_words(x: torch.Tensor, table: Registry) -> torch.Tensor:
    return x * len(" ".join(table))


def handed_on(x: torch.Tensor, table: Registry) -> torch.Tensor:
    def inner(found: Registry) -> float:
        return found["Tensor"] + len([key for key in found if key])

    return x * inner(table)


def popped(x: torch.Tensor, table: Registry) -> torch.Tensor:
    table = Registry(table)
    table.pop("Tensor")
    return x * len(table)


WHOLE = [
    *(goes_through, all_values, all_items, keys_alone, as_list, first, ordered, length, length_and_key),
    *(as_dict, unpacked, as_keywords, copied, joined, compared, in_words, handed_on, popped),
]


@pytest.mark.parametrize("call", WHOLE)
def test_who_goes_through_it_asks_for_all(call: Any) -> None:
    one = captured(call, rows(), table())
    assert refused(call, another, one) != ""


def a_tensor(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x + table["weight"]


def given_back(x: torch.Tensor, table: Any) -> Any:
    return x * 2.0, table["numbers"]


def written(x: torch.Tensor, table: Any) -> torch.Tensor:
    table["numbers"].append(1.0)
    return x * 2.0


@pytest.mark.parametrize("call", [a_tensor, given_back, written])
def test_what_bytecode_takes_out_by_its_place_stays_there(call: Any) -> None:
    def with_a_tensor() -> Registry:
        return Registry({"weight": torch.ones(4), "numbers": [1.0], "others": [2.0]})

    one = captured(call, rows(), with_a_tensor())
    again = one.loaded()
    one.frame_locals["table"] = with_a_tensor()
    assert again() == ""
    one.frame_locals["table"] = Registry(reversed(with_a_tensor().items()))
    assert again() != ""


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_a_key_that_was_only_found_is_asked_for_in_a_plain_dict_too(kind: Any) -> None:
    one = captured(only_there, rows(), kind({"Tensor": 3.0, "more": 1.0, None: 2.0}))
    again = one.loaded()
    for found, served in (({"Tensor": 5.0, "more": 2.0, None: 3.0}, True), ({"more": 1.0, None: 2.0}, False)):
        one.frame_locals["table"] = kind(found)
        assert (again() == "") is served


def test_dynamo_is_left_as_it_was() -> None:
    from torch._dynamo.variables.dicts import ConstDictVariable

    made(by_get)
    assert "items" not in ConstDictVariable.__dict__


class Here:
    pass


class There:
    pass


class Also:
    pass


ONE, OTHER = Here(), Here()


def class_taken(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * table[Here]


def class_got(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * table.get(Here, 5.0)


def class_in(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * 2.0 if Here in table else x * 3.0


def class_found(x: torch.Tensor, table: Any) -> torch.Tensor:
    try:
        table[Here]
    except KeyError:
        return x * 3.0
    return x * 2.0


def class_in_a_copy(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * {**table}[Here]


def class_in_a_list(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * 2.0 if Here in list(table) else x * 3.0


def object_taken(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * table[ONE]


def type_taken(x: torch.Tensor, table: Any) -> torch.Tensor:
    return x * table[x.dtype]


BY_WHAT = [
    *((call, Here, There) for call in (class_taken, class_got, class_in, class_found)),
    *((call, Here, There) for call in (class_in_a_copy, class_in_a_list)),
    (object_taken, ONE, OTHER),
    (type_taken, torch.float32, torch.float64),
]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, Registry])
@pytest.mark.parametrize(("call", "key", "other"), BY_WHAT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_key_that_is_no_text_has_to_be_the_one_at_its_place(
    call: Any, key: Any, other: Any, kind: Any
) -> None:
    one = captured(call, rows(), kind({key: 3.0, other: 4.0}))
    again = one.loaded()
    for found, served in (
        ({key: 3.0, other: 4.0}, True),
        ({other: 3.0, key: 4.0}, False),
        ({other: 3.0, Also: 4.0}, False),
    ):
        one.frame_locals["table"] = kind(found)
        if served or eager(call, kind(found)) != eager(call, kind({key: 3.0, other: 4.0})):
            assert (again() == "") is served


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, Registry])
@pytest.mark.parametrize("call", [class_got, class_in, class_found, class_in_a_list])
def test_a_key_that_is_no_text_and_was_not_there_may_not_come(call: Any, kind: Any) -> None:
    one = captured(call, rows(), kind({There: 3.0, Also: 4.0}))
    again = one.loaded()
    assert again() == ""
    for found in ({Here: 3.0, Also: 4.0}, {There: 3.0, Here: 4.0}, {There: 3.0, Also: 4.0, Here: 5.0}):
        one.frame_locals["table"] = kind(found)
        assert again() != ""


def eager(call: Any, table: Any) -> Any:
    try:
        return call(rows(), table).tolist()
    except KeyError as error:
        return repr(error)
