"""Repeated checks become functions; what the whole says about a value stays the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hatch_precompile.lower.guards.shortening import Block, Item, flat, function_text, share_parts


def layer(base: str, first: int, number: int) -> list[Item]:
    """A value with two parts of one kind, reached from `base`."""
    value, a, b = (f"v{first + offset}" for offset in range(3))
    leaf = "if not (type({v}) is int and {v} >= 0): return False"
    more = ["if not ({v} < 100): return False", "if not ({v} != 13): return False", "{v}_keys = [{v}]"]
    return [
        f"{value} = {base}[{number}]",
        Block(
            value,
            [
                f"if not (len({value}) == 2): return False",
                f"{a} = {value}[0]",
                Block(a, [line.format(v=a) for line in [leaf, *more]]),
                f"{b} = {value}[1]",
                Block(b, [line.format(v=b) for line in [leaf, *more]]),
            ],
        ),
    ]


def guard(layers: int, later: list[int]) -> tuple[list[Item], str]:
    """A guard on a list of pairs that is finally asked for the sum of some of the numbers."""
    inner: list[Item] = []
    for number in range(layers):
        inner += layer("v0", 1 + 3 * number, number)
    names = [f"v{1 + 3 * (index // 2) + 1 + index % 2}" for index in later]
    end = f"if not (sum([{', '.join(names)}]) % 2 == 0): return False"
    items: list[Item] = ["v0 = L['x']", Block("v0", inner), end]
    return items, "\n".join(flat(items))


def run(lines: list[str], functions: list[str], value: Any) -> bool:
    namespace: dict[str, Any] = {}
    exec("\n".join([*functions, function_text("guard", "L", [*lines, "return True"])]), namespace)
    return bool(namespace["guard"]({"x": value}))


@given(
    st.integers(1, 5).flatmap(
        lambda layers: st.tuples(
            st.lists(st.integers(0, 2 * layers - 1), max_size=4),
            st.lists(
                st.lists(st.sampled_from([0, 1, 2, 7, 13, 99, 100, -1]), min_size=2, max_size=2),
                min_size=layers,
                max_size=layers,
            ),
        )
    )
)
def test_the_shortened_function_answers_as_the_whole(case: tuple[list[int], list[list[int]]]) -> None:
    later, value = case
    whole = flat(guard(len(value), later)[0])
    lines, parts = share_parts(guard(len(value), later)[0])
    functions = [function_text(part.name, part.parameter, part.lines) for part in parts]
    assert run(lines, functions, value) == run(whole, [], value)


def test_many_equal_layers_become_calls_of_one_function() -> None:
    items, whole = guard(12, [0, 23])
    lines, parts = share_parts(items)
    assert [part.name for part in parts] == ["p0", "p1"], "a layer, and the half of a layer"
    assert sum("p0(" in line for line in lines) == 12
    assert sum("p1(" in line for line in parts[0].lines) == 2
    assert len("\n".join(lines)) < len(whole) / 2


def test_a_block_that_uses_a_variable_from_outside_stays_where_it_is() -> None:
    lines = [f"if not ({{v}} == v9 + {n}): return False" for n in range(6)]
    items: list[Item] = ["v9 = L['y']"]
    for name in ("v1", "v2"):
        items += [f"{name} = L['{name}']", Block(name, [line.format(v=name) for line in lines])]
    before = flat(items)
    assert share_parts(items) == (before, [])


def test_a_block_that_only_leads_to_another_does_not_share_with_it() -> None:
    checks = [f"if not (c1[{number}] is c2): return False" for number in range(6)]
    lines, parts = share_parts(["v0 = G", Block("v0", [Block("c1", list(checks))])])
    assert lines == ["v0 = G", *checks]
    assert parts == []
