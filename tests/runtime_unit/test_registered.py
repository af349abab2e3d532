"""Which classes were registered as another: found without asking everything that `issubclass` asks."""

from __future__ import annotations

import abc
import collections
import collections.abc
import gc
import numbers
import random
from typing import Any, Protocol, runtime_checkable

import pytest

from hatch_precompile.runtime import runtime

fingerprints = runtime("dependencies.fingerprints")


class Shape(metaclass=abc.ABCMeta):  # noqa: B024
    """Something is registered with it."""


class Round(Shape):
    """Something is registered below."""


class Marker(metaclass=abc.ABCMeta):  # noqa: B024
    """Itself registered, with others registered as it."""


class Ball: ...


class Coin: ...


class Dot: ...


class Blob: ...


Shape.register(Ball)
Round.register(Coin)
Shape.register(Marker)
Marker.register(Dot)


class Asks(metaclass=abc.ABCMeta):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return other is Blob or NotImplemented


class AsksBelow(Shape):
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return other is Blob or NotImplemented


class Own(abc.ABCMeta):
    def __subclasscheck__(cls, other: type) -> bool:
        return other is Blob


class WithOwn(metaclass=Own): ...


class Silent(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"{name} was asked for")


class Unasked(metaclass=Silent): ...


@runtime_checkable
class HasSize(Protocol):
    def size(self) -> int: ...


ABSTRACT = [
    *(Shape, Round, Marker, Asks, AsksBelow, WithOwn, HasSize, numbers.Number, numbers.Integral),
    *(collections.abc.Iterable, collections.abc.Mapping, collections.abc.Sequence, collections.abc.Sized),
    *(collections.abc.Hashable, collections.abc.Callable, collections.abc.Collection),
]

CLASSES: list[Any] = [Ball, Coin, Dot, Blob, Unasked, int, dict, collections.deque, collections.OrderedDict]


@pytest.mark.parametrize("base", ABSTRACT, ids=lambda base: base.__name__)
def test_none_that_is_registered_is_passed_over(base: Any) -> None:
    every = [cls for cls in gc.get_objects() if issubclass(type(cls), type)]
    some = random.Random(0).sample(every, min(len(every), 800))
    may_be = fingerprints._may_be_registered(base)
    for cls in [*CLASSES, *some]:
        try:
            if base in cls.__mro__ or getattr(cls, "_is_protocol", False):
                continue
            registered = issubclass(cls, base)
        except Exception:  # some do not like to be asked
            continue
        assert may_be(cls) or not registered, cls


@pytest.mark.parametrize("base", ABSTRACT, ids=lambda base: base.__name__)
def test_a_class_that_does_not_like_to_be_asked_is_looked_at_all_the_same(base: Any) -> None:
    fingerprints.virtual_subclasses({0: base, 1: Unasked})


def test_what_is_registered_is_found_and_most_is_not_asked() -> None:
    classes = dict(enumerate([Shape, Ball, Coin, Dot, Blob, Round, collections.abc.Mapping, dict, list]))
    assert set(fingerprints.virtual_subclasses(classes)) == {(1, 0), (2, 0), (3, 0), (4, 0), (2, 5), (7, 6)}
    may_be = fingerprints._may_be_registered(collections.abc.Mapping)
    assert [may_be(cls) for cls in (dict, list, Ball)] == [True, False, False]


class HasWeight(Protocol):
    def weight(self) -> int: ...


class HasScale(HasWeight, Protocol): ...


def test_a_protocol_that_cannot_be_asked_is_not_in_the_way() -> None:
    with pytest.raises(TypeError, match="runtime_checkable"):
        issubclass(Ball, HasWeight)
    classes = dict(enumerate([HasWeight, Ball, Shape, HasScale]))
    assert fingerprints.virtual_subclasses(classes) == ((1, 2),)
