"""Small sets of strings in each of their orders: every process has other hashes for strings, and so another
order of a set.

What goes through such a set is traced once for each order, with the set itself put into it, and the guards of
each entry ask for the order that it was traced in.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import random
from collections.abc import Iterator
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


class SetOrders:
    """The sets for whose order the guards of an entrypoint ask."""

    def __init__(self) -> None:
        # By id: the set, one of the nodes with its elements, and the order in which the program has it.
        self._sets: dict[int, tuple[set[Any], GuardNode, tuple[Any, ...]]] = {}

    @property
    def found(self) -> bool:
        """Whether there are any."""
        return bool(self._sets)

    def see(self, tree: GuardNode) -> None:
        """Keep those of one entry's guards."""
        for node in tree.nodes():
            if node.accessor != "set_getitem" or node.parent is None:
                continue
            found = node.parent.value
            if has_few_orders(found) and len(found) > 1 and any(type(each) not in _STEADY for each in found):
                self._sets.setdefault(id(found), (found, node, tuple(found)))

    def unserved(self, arguments: Any) -> tuple[GuardNode, str] | None:
        """An element of a set that cannot be put into its orders, with the reason; None if all can."""
        met: dict[int, Any] = {}
        copy.deepcopy(arguments, met)
        for number, (_, node, _) in self._sets.items():
            if number in met:
                return node, "it is in an argument, which each call has its own of"
        orders = math.prod(math.factorial(len(own)) for _, _, own in self._sets.values())
        if orders > _MOST_ORDERS:
            return node, f"with it there are {orders} orders, more than {_MOST_ORDERS}"
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
        each = [
            [(number, order) for order in itertools.permutations(own)]
            for number, (value, _, own) in self._sets.items()
            if value == set(own)  # else the program has changed it
        ]
        for pairs in itertools.product(*each):
            order = frozenset(pair for pair in pairs if pair[1] != self._sets[pair[0]][2])
            if order not in done:
                return order
        return None

    @contextlib.contextmanager
    def _put(self, order: frozenset[tuple[int, tuple[Any, ...]]]) -> Iterator[str]:
        words = []
        for number, elements in order:
            value, node, _ = self._sets[number]
            put_in_order(value, elements)
            words.append(f"{name_of_set(node)} in the order {', '.join(map(repr, elements))}")
        try:
            yield " and ".join(sorted(words))
        finally:
            for number, _ in order:
                value, _, own = self._sets[number]
                if value == set(own):
                    put_in_order(value, own)


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
