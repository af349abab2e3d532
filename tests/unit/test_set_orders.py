"""Sets of strings, in each order."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

from hatch_precompile.tracing.guardtree import GuardNode
from hatch_precompile.tracing.set_orders import SetOrders, has_few_orders, put_in_order

SETS: list[set[Any]] = [{"sin", "exp"}, {"aa", "b", "cccc"}, {"aa", 3, None}, {b"x", 0, 1}]


def put_in_every_order() -> None:
    for value in map(set, SETS):
        for order in itertools.permutations(value):
            put_in_order(value, order)
            assert tuple(value) == order


@pytest.mark.parametrize("seed", range(4))
def test_a_set_is_put_into_every_order(seed: int) -> None:
    code = f"from {__name__} import put_in_every_order; put_in_every_order()"
    environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_what_has_few_orders() -> None:
    assert all(map(has_few_orders, SETS))
    derived = type("Derived", (set,), {})
    for other in ({"a", "b", "c", "d"}, frozenset({"a"}), {"a", int}, {1.5, "a"}, derived("a")):
        assert not has_few_orders(other)


def _tree(*sets: set[str]) -> GuardNode:
    root = GuardNode("root", None, "", None, None)
    for number, value in enumerate(sets):
        node = GuardNode("framelocals", "s", f"L['s{number}']", value, root)
        node.children = [GuardNode("set_getitem", 0, f"list({node.source})[0]", next(iter(value)), node)]
        root.children.append(node)
    return root


def test_each_order_but_the_own_is_gone_through_once() -> None:
    first, second = {"a", "b"}, {"c", "d", "e"}
    own = tuple(first), tuple(second)
    orders, seen = SetOrders(), []
    orders.see(_tree(first))
    for other in orders.others():
        with other:
            seen.append((tuple(first), tuple(second)))
            orders.see(_tree(second))  # only the trace in this order comes to it
    assert (tuple(first), tuple(second)) == own
    assert len(set(seen)) == len(seen) == 2 * 6 - 1
    assert own not in seen


def test_what_the_program_changes_is_left_alone() -> None:
    changed = {"a", "b"}
    orders = SetOrders()
    orders.see(_tree(changed))
    for other in orders.others():
        with other:
            changed.add("c")
    assert changed == {"a", "b", "c"}
    assert list(orders.others()) == []


def test_sets_of_which_there_are_too_many_orders() -> None:
    orders = SetOrders()
    orders.see(_tree({"a", "b"}))
    assert orders.too_many() is None
    orders.see(_tree({"c", "d", "e"}))
    node, why = orders.too_many() or (None, "")
    assert (node and node.source, why) == ("list(L['s0'])[0]", "with it there are 12, more than 8")


def test_a_set_that_the_next_call_does_not_find_again() -> None:
    kept, given = {"a", "b"}, {"c", "d"}
    orders = SetOrders()
    orders.see(_tree(given, kept))
    for other in orders.others():
        with other:
            orders.see(_tree(kept))
    node, why = orders.missing() or (None, "")
    assert (node and node.source, why) == ("list(L['s0'])[0]", "each call has another set, or changes it")


def test_another_set_in_each_call_ends_with_too_many_orders() -> None:
    orders = SetOrders()
    orders.see(_tree({"a", "b"}))
    for other in orders.others():
        if orders.too_many():
            break
        with other:
            orders.see(_tree({"a", "b"}))
    assert orders.too_many()


def test_each_order_was_traced() -> None:
    kept = {"a", "b", "c"}
    orders = SetOrders()
    orders.see(_tree(kept))
    assert orders.missing() is not None
    for other in orders.others():
        with other:
            orders.see(_tree(kept))
    assert orders.missing() is None
