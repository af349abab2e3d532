"""Numbers beyond 64 bits, other arrays, equal values of other types: as arguments and as attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from tests.truth.changes.registry import add

_WITH_NUMBERS = (
    *("returns_numbers", "divides_numbers", "meets_tensors", "computes_fractions", "shifts_one"),
    *("counts_sizes", "rounds_fractions"),
)
_WITH_ARRAYS = ("computes_with_arrays", "mixes_arrays")
# Of which programs, which argument, and how many values there are that are equal to it.
_EQUALS = (
    *((_WITH_NUMBERS, place, 2) for place in (1, 2)),
    *((("walks_sets",), place, 3) for place in (1, 2)),
    *((("walks_tables",), place, many) for place, many in ((1, 7), (2, 7), (3, 7))),
)

INTEGERS = (
    *(0, 1, -1, -5, 31, 40, 63, 64, 255, 256, 3_000_000, -3_000_000, 2**31, 2**32, 3037000500, 2**53 + 1),
    *(2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64 + 5, 10**30),
)
FLOATS = (0.0, -0.0, 0.5, -2.5, 65504.0, 65520.0, 1e10, 1e19, 1e39, 1e300, float("inf"), float("nan"))


class Array(numpy.ndarray):
    """A subclass of the user's."""


def _read_only(array: numpy.ndarray) -> numpy.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


ARRAYS: dict[str, Callable[[numpy.ndarray], Any]] = {
    "a copy": lambda a: a.copy(),
    "a tensor": lambda a: torch.from_numpy(a.copy()),
    "masked": lambda a: numpy.ma.masked_array(a, mask=a == a.flat[0]),
    "a matrix": numpy.asmatrix,
    "of a subclass": lambda a: a.view(Array),
    "records": lambda a: a.view(numpy.recarray),
    "read-only": _read_only,
    "with its bytes swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "of objects": lambda a: a.astype(object),
    "of another type": lambda a: a.astype(numpy.float64),
    "backwards": lambda a: a[..., ::-1],
    "in another order": numpy.asfortranarray,
    "of one repeated": lambda a: numpy.broadcast_to(a[:1], a.shape),
    "a list": lambda a: a.tolist(),
    "shorter": lambda a: a[:2],
}


def _equals(value: Any) -> Iterator[Any]:
    """Values that are equal to one, of another type or in another order."""
    if isinstance(value, bool):
        yield int(value)
    elif isinstance(value, int):
        yield float(value)
        if value in (0, 1):
            yield bool(value)
        yield numpy.int64(value)
    elif isinstance(value, float):
        yield numpy.float64(value)
        if value == 0.0:
            yield -value
        if value.is_integer():
            yield int(value)
    elif isinstance(value, (set, frozenset)):
        yield type(value)({next(_equals(item), item) for item in value})
        yield type(value)(reversed(list(value)))
        yield frozenset(value) if isinstance(value, set) else set(value)
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            for other in _equals(item):
                yield (*value[:number], other, *value[number + 1 :])
    elif type(value) is dict:
        yield {next(_equals(key), key): item for key, item in value.items()}
        yield dict(reversed(value.items()))
        for key, item in value.items():
            for other in _equals(item):
                yield {**value, key: other}


def _equal(which: int) -> Callable[[Any], Any]:
    """The so manieth value that is equal to one, if there are so many."""

    def change(value: Any) -> Any:
        others = list(_equals(value))
        return others[which] if which < len(others) else value

    return change


def _of_type(kind: type, other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: other(value) if isinstance(value, kind) and not isinstance(value, bool) else value


def _arguments(change: Callable[[Any], Any], before: int, place: int | None) -> Callable[[Any], None]:
    """place: of the argument that is another; None for all"""

    def other(values: list[Any]) -> list[Any]:
        return [change(value) if place in (None, number) else value for number, value in enumerate(values)]

    def apply(run: Any) -> None:
        run.load()
        for time in range(before):
            run.call(label=f"call {time}")
        run.call(other, label="changed")
        run.call(label="then, a sample")

    return apply


def _attributes(change: Callable[[Any], Any], before: int) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        for time in range(before):
            run.call(label=f"call {time}")
        for name, value in list(vars(run.object).items()):
            if not name.startswith("_") and name != "training":
                setattr(run.object, name, change(value))
        run.call(label="changed")

    return apply


# After so many calls the guards are asked as native code.
_WHEN = {"first": 0, "later": 1, "after 13": 13}

for _when, _before in _WHEN.items():
    for _number in INTEGERS:
        for _place in (1, 2):
            _change = _of_type(int, lambda _, number=_number: number)
            _words = f"inputs: argument {_place} is {_number}, {_when}"
            _only = tuple(each for each in _WITH_NUMBERS if each != "shifts_one" or abs(_number) < 300)
            add(_words, "number", _arguments(_change, _before, _place), only=_only)
    for _fraction in FLOATS:
        _change = _of_type(float, lambda _, fraction=_fraction: fraction)
        _apply = _arguments(_change, _before, None)
        add(f"inputs: numbers are {_fraction}, {_when}", "number", _apply, only=_WITH_NUMBERS)
    for _name, _other in ARRAYS.items():
        _change = _of_type(numpy.ndarray, _other)
        _harmless = _name == "a copy"
        for _place in (0, 1):
            _words = f"inputs: array {_place} is {_name}, {_when}"
            _apply = _arguments(_change, _before, _place)
            add(_words, "array", _apply, harmless=_harmless, only=_WITH_ARRAYS)
        _words = f"attributes: arrays are {_name}, {_when}"
        add(_words, "array", _attributes(_change, _before), harmless=_harmless, only=("OfArrays",))
    for _only, _place, _many in _EQUALS:
        for _which in range(_many):
            _words = f"inputs: argument {_place} of {_only[0]}: equal value {_which}, {_when}"
            add(_words, "equal value", _arguments(_equal(_which), _before, _place), only=_only)
    for _which in range(6):
        _apply = _attributes(_equal(_which), _before)
        add(f"attributes: equal value {_which}, {_when}", "equal value", _apply, only=("OfValues",))
