"""Which of the sizes that were declared no entry serves: looked for where conditions change their answer."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hatch_precompile.lower.size_conditions import SizeCondition

__all__ = ["Coverage", "Gap", "Range"]

# Of one range all sizes are tried up to so many; combinations of several up to so many.
_SIZES = 4096
_POINTS = 4096

Point = tuple[int, ...]
"""A size for each range."""


@dataclass(frozen=True)
class Range:
    """The sizes that dimensions of one name were declared to have. `before`: the sample's; `keys`: which."""

    name: str
    before: int
    low: int
    high: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Gap:
    """Sizes that no entry serves, and the conditions of the nearest entry that they do not fulfil."""

    point: Point
    conditions: frozenset[SizeCondition]


class Coverage:
    """The sizes of one sample. `others`: its declared dimensions that have one size only, by their keys."""

    def __init__(self, ranges: Sequence[Range], others: Mapping[str, int]) -> None:
        self.ranges = ranges
        self.others = others
        self.excused: set[frozenset[SizeCondition]] = set()
        self._known: dict[tuple[SizeCondition, tuple[int, ...]], bool] = {}

    def sizes(self, point: Point) -> dict[str, int]:
        """The size of each declared dimension."""
        varied = {key: size for each, size in zip(self.ranges, point, strict=True) for key in each.keys}
        return {**self.others, **varied}

    def gaps(self, frames: Sequence[Sequence[Sequence[SizeCondition]]]) -> list[Gap]:
        """Sizes that the entries of a frame do not serve, the clearest first: those that fail the fewest
        conditions, and of these the smallest. What is excused is left out.

        frames: of each its entries, as their conditions
        """
        conditions = {each for entries in frames for entry in entries for each in entry}
        found = []
        for point in self._points(conditions):
            missing = [gap for entries in frames if (gap := self._missing(point, entries)) is not None]
            if missing:
                found.append(Gap(point, min(missing, key=len)))
        return sorted(found, key=lambda gap: (len(gap.conditions), math.prod(gap.point), gap.point))

    def _missing(
        self, point: Point, entries: Sequence[Sequence[SizeCondition]]
    ) -> frozenset[SizeCondition] | None:
        """What the entry that is nearest to serving a point asks in vain; None if one serves it, or if it is
        excused."""
        sizes = self.sizes(point)
        nearest: frozenset[SizeCondition] | None = None
        for entry in entries:
            failed = frozenset(each for each in entry if not self._holds(each, sizes))
            if not failed:
                return None
            if not any(excused <= failed for excused in self.excused) and (
                nearest is None or len(failed) < len(nearest)
            ):
                nearest = failed
        return nearest

    def _holds(self, condition: SizeCondition, sizes: Mapping[str, int]) -> bool:
        key = condition, tuple(sizes.get(key, -1) for key in condition.keys)
        if key not in self._known:
            self._known[key] = condition.holds(sizes)
        return self._known[key]

    def values(self, condition: SizeCondition) -> tuple[int, list[int]] | None:
        """For a condition on one range alone: the range's place, and its sizes that fulfil it; else None."""
        places = {place for place, each in enumerate(self.ranges) if set(each.keys) & set(condition.keys)}
        if len(places) != 1:
            return None
        (place,) = places
        found = []
        for size in _spread(self.ranges[place]):
            point = tuple(size if place == at else each.before for at, each in enumerate(self.ranges))
            if self._holds(condition, self.sizes(point)):
                found.append(size)
        return place, found

    def _points(self, conditions: set[SizeCondition]) -> Iterator[Point]:
        chosen = [self._chosen(place, conditions) for place in range(len(self.ranges))]
        if math.prod(map(len, chosen)) <= _POINTS:
            yield from itertools.product(*chosen)
            return
        for rest in (
            [each.before for each in self.ranges],
            *zip(*((s[0], s[-1]) for s in chosen), strict=True),
        ):
            for place, sizes in enumerate(chosen):
                yield from ((*rest[:place], size, *rest[place + 1 :]) for size in sizes)
        drawn = random.Random(0)
        yield from (tuple(map(drawn.choice, chosen)) for _ in range(_POINTS))

    def _chosen(self, place: int, conditions: set[SizeCondition]) -> list[int]:
        """Sizes of a range on both sides of where an answer may change."""
        each = self.ranges[place]
        found = {each.low, each.before, each.high}
        for limit in (each.low, each.before, each.high, *(1 << power for power in range(17))):
            found |= {limit - 1, limit, limit + 1}
        for condition in conditions:
            if not set(each.keys) & set(condition.keys):
                continue
            for number in map(int, re.findall(r"(?<![\w.])\d+(?![\w.])", condition.expression)):
                found |= {number - 1, number, number + 1}
            known = self.values(condition)
            if known is not None:
                refused = sorted(set(_spread(each)) - set(known[1]))
                above = [size for size in refused if size > each.before]
                found |= {*refused[:2], *above[:2], *refused[-2:]}
        return sorted(size for size in found if each.low <= size <= each.high)


def _spread(each: Range) -> range:
    return range(each.low, each.high + 1, 1 + (each.high - each.low) // _SIZES)
