"""Small sets of strings in each of their orders: every process has other hashes for strings, and so another
order of a set.

What goes through such a set is traced once for each order, with the set itself put into it, and the guards of
each entry ask for the order that it was traced in.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["SetOrders", "has_few_orders", "name_of_set", "put_in_order"]

_MOST_ELEMENTS = 3

# Of all sets together: as many as a set of three has, or two of two and one more.
_MOST_ORDERS = 8

# Of strings, bytes and None (before 3.12) every process has another hash.
_STEADY = (bool, int)
_ELEMENTS = (str, bytes, NoneType, *_STEADY)


def has_few_orders(value: Any) -> TypeGuard[set[Any]]:
    """Whether an entry can be made for each order of a set. A frozenset cannot be put into another one."""
    few = type(value) is set and len(value) <= _MOST_ELEMENTS
    return few and all(type(element) in _ELEMENTS for element in value)


@dataclass
class _Seen:
    """A set. node: of one of its elements; own: the order in which the program has it; traced: all in which a
    trace has found it"""

    value: set[Any]
    node: GuardNode
    own: tuple[Any, ...]
    traced: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def is_unchanged(self) -> bool:
        return self.value == set(self.own)


class SetOrders:
    """The sets for whose order the guards of an entrypoint ask."""

    def __init__(self) -> None:
        self._sets: dict[int, _Seen] = {}  # by id

    def see(self, tree: GuardNode) -> None:
        """Keep those of one entry's guards."""
        for node in tree.nodes():
            if node.accessor != "set_getitem" or node.parent is None:
                continue
            found = node.parent.value
            if has_few_orders(found) and len(found) > 1 and any(type(each) not in _STEADY for each in found):
                order = tuple(found)
                self._sets.setdefault(id(found), _Seen(found, node, order)).traced.add(order)

    def too_many(self) -> tuple[GuardNode, str] | None:
        """An element of the last set, with a sentence, where there are more orders in all than are traced."""
        orders = math.prod(math.factorial(len(each.own)) for each in self._sets.values())
        if orders <= _MOST_ORDERS:
            return None
        last = next(reversed(self._sets.values()))
        return last.node, f"with it there are {orders}, more than {_MOST_ORDERS}"

    def missing(self) -> tuple[GuardNode, str] | None:
        """An element of a set that no trace has found in some of its orders, though it was put into each."""
        for each in self._sets.values():
            if len(each.traced) < math.factorial(len(each.own)):
                return each.node, "each call has another set, or changes it"
        return None

    def others(self) -> Iterator[contextlib.AbstractContextManager[str]]:
        """For each order but the program's own a context in which the sets are in it; it gives words for it.
        Sets that are seen while one is entered are gone through in their turn."""
        done = {frozenset[tuple[int, tuple[Any, ...]]]()}
        while (order := self._next(done)) is not None:
            done.add(order)
            yield self._put(order)

    def _next(self, done: set[frozenset[tuple[int, tuple[Any, ...]]]]) -> Any:
        """The first that was not done: of each set that is not in its own order, its id and elements."""
        orders = [
            [(number, order) for order in itertools.permutations(each.own)]
            for number, each in self._sets.items()
            if each.is_unchanged
        ]
        for pairs in itertools.product(*orders):
            order = frozenset(pair for pair in pairs if pair[1] != self._sets[pair[0]].own)
            if order not in done:
                return order
        return None

    @contextlib.contextmanager
    def _put(self, order: frozenset[tuple[int, tuple[Any, ...]]]) -> Iterator[str]:
        words = []
        for number, elements in order:
            each = self._sets[number]
            put_in_order(each.value, elements)
            words.append(f"{name_of_set(each.node)} in the order {', '.join(map(repr, elements))}")
        try:
            yield " and ".join(sorted(words))
        finally:
            for number, _ in order:
                each = self._sets[number]
                if each.is_unchanged:
                    put_in_order(each.value, each.own)


def name_of_set(node: GuardNode) -> str:
    """Dynamo's, of the set that a node is an element of."""
    return node.parent.source if node.parent else ""


def put_in_order(value: set[Any], order: tuple[Any, ...]) -> None:
    """Have a set of few elements give them in an order, and stay the same object.

    Where an element is depends on its hash, on how large the set was, and on which places were taken when it
    was added: rows of numbers are added before it, drawn at random, and taken out one by one. (Taken out at
    once, CPython makes the set anew, and small.)
    """
    drawn = random.Random(0)
    for _ in range(100_000):
        if tuple(value) == order:
            return
        value.clear()
        others, left = set[int](), drawn.choice(_NUMBERS)
        for element in order:
            first, count = drawn.randrange(1 << 16), drawn.randrange(left + 1)
            row = set(range(first, first + count)).difference(order)
            value.update(row)
            value.add(element)
            others |= row
            left -= count
        for number in others:
            value.discard(number)
    raise RuntimeError(f"a set cannot be put into the order {order}")


# How many numbers fill more than half of the places that a set then has.
_NUMBERS = (15, 72, 300, 1100)
