"""Sizes that no entry serves are found where conditions change their answer."""

from __future__ import annotations

import ast

import pytest

from hatch_precompile.capture.size_coverage import Coverage, Range
from hatch_precompile.lower.size_conditions import SizeCondition

HEIGHT = Range("height", before=32, low=8, high=512, keys=("x.2",))
WIDTH = Range("width", before=40, low=8, high=512, keys=("x.3", "y.3"))
KEYS = {"h": "x.2", "w": "x.3"}


def condition(text: str) -> SizeCondition:
    names = sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} & set(KEYS))
    expression = text
    for number, name in enumerate(names):
        expression = expression.replace(name, f"d{number}")
    keys = tuple(KEYS[name] for name in names)
    return SizeCondition(keys, expression, compile(expression, "", "eval"))


@pytest.mark.parametrize(
    ("conditions", "points"),
    [
        ([], []),
        (["3 * h * w <= 300_000_000"], []),
        (["3 * h * w <= 20480"], [(15, 511)]),
        (["h // 32 != 1"], [(32, 8)]),
        (["h <= 481"], [(482, 8)]),
        (["h % 8 == 0"], [(9, 8)]),
        (["h != 211"], [(211, 8)]),
        (["h == w"], [(8, 9)]),
        (["h >= 9", "w >= 9"], [(8, 9)]),
    ],
)
def test_the_clearest_gap_is_the_smallest(conditions: list[str], points: list[tuple[int, int]]) -> None:
    coverage = Coverage([HEIGHT, WIDTH], {})
    gaps = coverage.gaps([[[condition(text) for text in conditions]]])
    assert [gap.point for gap in gaps[:1]] == points


def test_two_entries_share_the_sizes() -> None:
    sides = [condition("3 * h * w <= 20480")], [condition("3 * h * w > 20480")]
    assert Coverage([HEIGHT, WIDTH], {}).gaps([sides]) == []


def test_each_function_has_entries_of_its_own() -> None:
    first, second = [[condition("h <= 100")], [condition("h > 100")]], [[condition("h <= 100")]]
    gaps = Coverage([HEIGHT, WIDTH], {}).gaps([first, second])
    assert gaps[0].point == (101, 8)


def test_what_is_excused_is_left_out() -> None:
    coverage = Coverage([HEIGHT, WIDTH], {})
    even, small = condition("h % 2 == 0"), condition("w <= 100")
    coverage.excused.add(frozenset({even}))
    assert {gap.conditions for gap in coverage.gaps([[[even, small]]])} == {frozenset({small})}


def test_many_ranges_are_searched_at_their_ends() -> None:
    ranges = [Range(f"r{n}", 8, 2, 64, (f"x.{n}",)) for n in range(6)]
    only = SizeCondition(("x.3",), "d0 < 64", compile("d0 < 64", "", "eval"))
    gaps = Coverage(ranges, {}).gaps([[[only]]])
    assert gaps[0].point == (2, 2, 2, 64, 2, 2)
