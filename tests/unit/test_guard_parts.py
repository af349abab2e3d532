"""Repeated checks become functions; what the whole says about a value stays the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hatch_precompile.lower.guards.checks import Accept, Assign, CallPart, Check, Function, Statement
from hatch_precompile.lower.guards.deduplication import Block, Line, flat, share_parts
from hatch_precompile.lower.guards.expressions import Constant, Name, Variable
from tests.support.guard_text import expression_of


def check(condition: str) -> Check:
    return Check("EQUALS_MATCH", expression_of(condition))


def layer(base: str, first: int, number: int) -> list[Line]:
    """A value with two parts of one kind, reached from `base`."""
    value, a, b = (Variable(first + offset) for offset in range(3))
    conditions = ["type({v}) is int and {v} >= 0", "{v} < 100", "{v} != 13"]

    def leaf(variable: Variable) -> Block:
        checks = [check(condition.format(v=variable)) for condition in conditions]
        return Block(variable, [*checks, Assign(Variable(variable.number, "_keys"), variable)])

    return [
        Assign(value, expression_of(f"{base}[{number}]")),
        Block(
            value,
            [
                check(f"len({value}) == 2"),
                Assign(a, expression_of(f"{value}[0]")),
                leaf(a),
                Assign(b, expression_of(f"{value}[1]")),
                leaf(b),
            ],
        ),
    ]


def guard(layers: int, later: list[int]) -> list[Line]:
    """A guard on a list of pairs that is finally asked for the sum of some of the numbers."""
    inner: list[Line] = []
    for number in range(layers):
        inner += layer("v0", 1 + 3 * number, number)
    names = [f"v{1 + 3 * (index // 2) + 1 + index % 2}" for index in later]
    first = Assign(Variable(0), expression_of("L['x']"))
    return [first, Block(Variable(0), inner), check(f"sum([{', '.join(names)}]) % 2 == 0")]


def run(body: list[Statement], parts: list[Function], value: Any) -> bool:
    namespace: dict[str, Any] = {}
    functions = [*parts, Function("guard", "L", [*body, Accept()])]
    exec("\n".join(function.text() for function in functions), namespace)
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
    whole = flat(guard(len(value), later))
    assert run(*share_parts(guard(len(value), later)), value) == run(whole, [], value)


def test_many_equal_layers_become_calls_of_one_function() -> None:
    whole = flat(guard(12, [0, 23]))
    body, parts = share_parts(guard(12, [0, 23]))
    assert [part.name for part in parts] == ["p0", "p1"], "a layer, and the half of a layer"
    assert [each.part for each in body if isinstance(each, CallPart)] == ["p0"] * 12
    assert [each.part for each in parts[0].body if isinstance(each, CallPart)] == ["p1"] * 2
    assert len(body) < len(whole) / 2


def test_a_block_that_uses_a_variable_from_outside_stays_where_it_is() -> None:
    items: list[Line] = [Assign(Variable(9), expression_of("L['y']"))]
    for variable in (Variable(1), Variable(2)):
        checks = [check(f"{variable} == v9 + {number}") for number in range(6)]
        items += [Assign(variable, expression_of(f"L['{variable}']")), Block(variable, [*checks])]
    before = flat(items)
    assert share_parts(items) == (before, [])


def test_a_block_that_only_leads_to_another_does_not_share_with_it() -> None:
    checks = [check(f"c1[{number}] is c2") for number in range(6)]
    start = Assign(Variable(0), Name("G"))
    body, parts = share_parts([start, Block(Variable(0), [Block(Constant(1), [*checks])])])
    assert body == [start, *checks]
    assert parts == []
