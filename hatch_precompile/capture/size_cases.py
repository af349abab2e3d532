"""Entries for all sizes that an author declared: where those of a sample serve only some of them, the sample
is called in others.

A trace asks questions about sizes, and an entry serves the sizes with the sample's answers: on one side of an
`if`, images that are more than one pixel at the end, two and more. Sizes on the other side become a call of
their own, and its entry one more of the entrypoint. What cannot be served is said, or stops the build.

Where not all that runs is compiled, the rest hands tensors and numbers to compiled code, and nobody has
declared their sizes. Those that change when the sample is called in other sizes are traced for any value.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType

from hatch_precompile.capture.size_coverage import Coverage, Gap, Point, Range
from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.call import Sample, copied, raised_eagerly
from hatch_precompile.entrypoints.dynamic import DeclaredSize, declared_sizes
from hatch_precompile.entrypoints.finding import Target
from hatch_precompile.entrypoints.resized import Sizes, in_words, resizable, resized
from hatch_precompile.errors import BuildError, Unsupported
from hatch_precompile.lower.size_conditions import SizeCondition
from hatch_precompile.records import Case

__all__ = ["Cases", "Region"]

# Entries that one sample may get beside its own.
_MOST = 12

# Where not all is one graph: the most calls in sizes near the sample's, made until one needs no new entry;
# and the calls in the smallest sizes, where half of a size, say, is 1, which needs an entry of its own.
_MOST_NEAR = 3
_SMALLEST = 4

# Calls in which the model itself raises, after which no more sizes are tried.
_MOST_RAISED = 24

# How many times as large as the sample a call at the build may be: to make an entry, and to verify one more.
_TO_SERVE = 256
_TO_VERIFY = 4
# Elements of all declared tensors that are few in any case.
_FEW = 1 << 16


@dataclass
class Region:
    """The sizes that one entry serves. `samples`: the numbers of the samples that it serves in them."""

    conditions: Sequence[SizeCondition]
    samples: set[int] = field(default_factory=set)


class Cases:
    """What the samples of one entrypoint need beside their own calls.

    regions: of each frame those of its entries, to which a call adds
    call: calls a sample until nothing new comes of it; gives the number of new entries, raises BuildError
    in_pieces: whether not all that runs is one graph
    """

    def __init__(
        self,
        entrypoint: Entrypoint,
        regions: dict[CodeType, list[Region]],
        call: Callable[[Sample], int],
        note: Callable[[str], None],
        *,
        in_pieces: bool,
    ) -> None:
        self.entrypoint = entrypoint
        self.regions = regions
        self.call = call
        self.note = note
        self.in_pieces = in_pieces

    def serve(self, number: int, target: Target, sample: Sample) -> list[Case]:
        """Call a sample in all sizes that need an entry of their own, and at the ends of their ranges.

        number: the sample's, from 0. Raises Unsupported where sizes that were declared stay unserved.
        """
        one = _OneSample(self, number, target, sample)
        if one.made_entries():
            one.require_free()
            if self.in_pieces:
                one.call_elsewhere()
            if one.coverage.ranges and one.may_be_resized():
                one.close_gaps()
                one.call_at_ends()
        return one.cases


class _OneSample:
    def __init__(self, of: Cases, number: int, target: Target, sample: Sample) -> None:
        self.of = of
        self.number = number
        self.target = target
        self.sample = sample
        self.cases: list[Case] = []
        self.more = 0  # entries
        self.raised: dict[frozenset[SizeCondition], list[Point]] = {}
        self.declared = declared_sizes(of.entrypoint, target, sample)
        ranges = _ranges([each for each in self.declared if _has_an_end(each)])
        varied = {key for each in ranges for key in each.keys}
        others = {each.key: each.size for each in self.declared if each.key not in varied}
        self.coverage = Coverage(ranges, others)
        self.names = {each.key: each.dimension.name for each in self.declared}

    def made_entries(self) -> bool:
        return any(
            self.number in region.samples for regions in self.of.regions.values() for region in regions
        )

    def _entries(self) -> list[list[Sequence[SizeCondition]]]:
        """Of each frame the entries that are known to serve this sample in some sizes."""
        found = []
        for regions in self.of.regions.values():
            own = [region.conditions for region in regions if self.number in region.samples]
            if own:
                found.append(own)
        return found

    def may_be_resized(self) -> bool:
        """Whether it can be called in other sizes. Where it would have to be, that is said."""
        others = [each.tensor for each in self.declared if not resizable(each.tensor)]
        if others and (gaps := self.coverage.gaps(self._entries())):
            kind = type(others[0]).__name__
            self._say(gaps[0].point, f"not served, and a {kind} cannot be resized{self._because(gaps[0])}")
        return not others

    # -- what the code fixes -------------------------------------------------------------------

    def require_free(self) -> None:
        """Raises Unsupported where the code has made a constant of a size that was declared."""
        ranges = {key: each for each in self.coverage.ranges for key in each.keys}
        free = {each.key: each for each in self.declared if each.size > 1 and each.is_in_range}
        for condition in (each for entries in self._entries() for entry in entries for each in entry):
            fixed = re.fullmatch(r"d0 == (\d+)|(\d+) == d0", condition.expression)
            if fixed is None or (declared := free.get(condition.keys[0])) is None:
                continue
            few = ranges.get(declared.key)
            if few is None or few.high - few.low >= _MOST:
                raise Unsupported(
                    f"dynamic-shapes.{declared.key}: the code fixes {declared.dimension.name} to the "
                    f"sample's {declared.size}",
                    condition.where,
                    "Take it out of dynamic-shapes and give a sample for each size, or change what is done "
                    "with it.",
                )

    # -- sizes that nobody has declared --------------------------------------------------------

    def call_elsewhere(self) -> None:
        """Call it in sizes near its own until one needs no new entry, see AnyValue, and in the smallest."""
        ranges = _ranges([each for each in self.declared if each.size > 1])
        kinds = [type(each.tensor).__name__ for each in self.declared if not resizable(each.tensor)]
        if ranges and kinds:
            self.of.note(
                f"not all of it is compiled, and a {kinds[0]} cannot be resized: other sizes may be misses"
            )
        if not ranges or kinds:
            return
        new = called = 0
        for sizes in (_sizes_at(ranges, point) for point in _near(ranges)):
            made = self._made(sizes)
            if made is not None:
                new, called = made, called + 1
                if not new or called == _MOST_NEAR:
                    break
        if not called:
            self.of.note(
                "the model itself raises in sizes near these: whether others are served is not known"
            )
        elif new and called == _MOST_NEAR:
            self.of.note(
                f"each of {called} calls in other sizes made new entries: what is not compiled gives sizes "
                "that the rest is fixed to, so others may be misses"
            )
        else:
            for sizes in (_sizes_at(ranges, point) for point in _smallest(ranges)):
                self._made(sizes)

    def _made(self, sizes: Sizes) -> int | None:
        """How many entries a call in other sizes made; None where the model itself raises."""
        try:
            return self._call(sizes)
        except BuildError as error:
            if self._raised(sizes):
                return None
            raise self._failed(sizes, error) from None

    # -- gaps ----------------------------------------------------------------------------------

    def close_gaps(self) -> None:
        while gaps := self.coverage.gaps(self._entries()):
            gap = self._chosen(gaps)
            if gap is None:
                raise self._unserved(gaps[0], "they are too many to be called at the build")
            if self.more >= _MOST:
                raise self._unserved(gap, f"there are {self.more} entries beside the sample's own")
            if sum(map(len, self.raised.values())) >= _MOST_RAISED:
                self._say(gap.point, f"whether it is served is not known{self._because(gap)}")
                return
            self._close(gap)

    def _chosen(self, gaps: Sequence[Gap]) -> Gap | None:
        """The clearest gap that can be called. Where the model has raised, the largest one with the same
        conditions: the sizes may have been too small for something else."""
        possible = [gap for gap in gaps if self._times(gap.point) <= _TO_SERVE]
        if not possible:
            return None
        first = possible[0]
        if first.conditions in self.raised:
            alike = [gap for gap in possible if gap.conditions == first.conditions]
            return max(alike, key=lambda gap: math.prod(gap.point))
        return first

    def _close(self, gap: Gap) -> None:
        try:
            new = self._call(self._sizes(gap.point))
        except BuildError as error:
            raised = self._raised(self._sizes(gap.point))
            if not raised:
                raise self._failed(self._sizes(gap.point), error, self._because(gap)) from None
            points = self.raised.setdefault(gap.conditions, [])
            if not points:
                self._say(gap.point, f"the model itself raises {raised}{self._because(gap)}")
            again = gap.point in points
            points.append(gap.point)
            if again or len(points) > 1:
                self.coverage.excused.add(gap.conditions)
            return
        if new:
            self.more += new
            more = "one more entry" if new == 1 else f"{new} more entries"
            self._say(gap.point, f"{more}{self._because(gap)}")
            return
        # Either another sample's entry serves it, or the frame without one is not called in these sizes.
        sizes = self.coverage.sizes(gap.point)
        found = False
        for region in (region for regions in self.of.regions.values() for region in regions):
            if self.number not in region.samples and all(each.holds(sizes) for each in region.conditions):
                region.samples.add(self.number)
                found = True
        if not found:
            self.coverage.excused.add(gap.conditions)

    def _call(self, sizes: Sizes) -> int:
        new = self.of.call(dataclasses.replace(self.sample, resized=sizes))
        self.cases.append(Case(self.number, sizes))
        return new

    def _raised(self, sizes: Sizes) -> str:
        """What the model raises in these sizes where nothing is compiled, or nothing."""
        given = resized(
            self.of.entrypoint,
            self.target,
            dataclasses.replace(copied(self.sample), resized=sizes),
        )
        error = raised_eagerly(self.target.call, given)
        if error is None:
            return ""
        return f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"

    # -- ends ----------------------------------------------------------------------------------

    def call_at_ends(self) -> None:
        """Call it with the smallest and the largest sizes: what no condition tells shows there, too."""
        called = {case.sizes for case in self.cases}
        own = tuple(each.before for each in self.coverage.ranges)
        for point in (tuple(each.low for each in self.coverage.ranges), self._largest()):
            if point == own or self._sizes(point) in called or self._is_excused(point):
                continue
            if (times := self._times(point)) > _TO_VERIFY:
                text = f"is not called at the build, because it is {times:.0f} times as large as the sample"
                self._say(point, text)
                continue
            try:
                self.more += self._call(self._sizes(point))
            except BuildError as error:
                raised = self._raised(self._sizes(point))
                if not raised:
                    raise self._failed(self._sizes(point), error) from None
                self._say(point, f"the model itself raises {raised}")

    def _largest(self) -> Point:
        return tuple(each.high for each in self.coverage.ranges)

    def _is_excused(self, point: Point) -> bool:
        sizes = self.coverage.sizes(point)
        return any(
            not any(condition.holds(sizes) for condition in excused) for excused in self.coverage.excused
        )

    # -- words ---------------------------------------------------------------------------------

    def _sizes(self, point: Point) -> Sizes:
        return _sizes_at(self.coverage.ranges, point)

    def _times(self, point: Point) -> float:
        """How many times as large as the sample a call is, or 1 where it is small."""
        sizes = self.coverage.sizes(point)
        tensors = {id(each.tensor): each.tensor for each in self.declared}
        elements = 0
        for tensor in tensors.values():
            shape = list(tensor.shape)
            for each in self.declared:
                if each.tensor is tensor:
                    shape[each.index] = sizes[each.key]
            elements += math.prod(shape)
        if elements <= _FEW:
            return 1.0
        return elements / max(sum(tensor.numel() for tensor in tensors.values()), 1)

    def _because(self, gap: Gap) -> str:
        parts = []
        for each in sorted(gap.conditions, key=lambda each: each.expression)[:3]:
            where = f", at {each.where}" if each.where else ""
            parts.append(f"{each.spelled(self.names)} does not hold{where}")
        return f"; {'; '.join(parts)}" if parts else ""

    def _say(self, point: Point, text: str) -> None:
        self.of.note(f"at {in_words(self._sizes(point))}: {text}")

    def _declared(self) -> str:
        return ", ".join(f"{each.name} {each.low} to {each.high}" for each in self.coverage.ranges)

    def _unserved(self, gap: Gap, why: str) -> Unsupported:
        return Unsupported(
            f"dynamic-shapes declares {self._declared()}, but no entry serves "
            f"{in_words(self._sizes(gap.point))}, and {why}",
            self._because(gap).removeprefix("; "),
            "Declare a smaller range, or change the code there so that it does the same for all sizes.",
        )

    def _failed(self, sizes: Sizes, error: BuildError, why: str = "") -> Unsupported:
        declared = self._declared()
        if declared:
            advice = "Declare a smaller range, or change the code there."
        else:
            declared = ", ".join(dict.fromkeys(self.names.values()))
            advice = "Declare the range of sizes that are passed, with min and max, or change the code there."
        return Unsupported(
            f"dynamic-shapes declares {declared}, but at {in_words(sizes)} it cannot be compiled: {error}",
            why.removeprefix("; "),
            advice,
        )


def _has_an_end(declared: DeclaredSize) -> bool:
    return (declared.dimension.min, declared.dimension.max) != (None, None)


def _ranges(declared: Sequence[DeclaredSize]) -> list[Range]:
    """What was declared, of dimensions whose size in the sample is in the range. Where there is no end, of
    sizes like the sample's."""
    groups: dict[tuple[str, int], list[DeclaredSize]] = {}
    for each in declared:
        if each.is_in_range:
            groups.setdefault((each.dimension.name, each.size), []).append(each)
    found = []
    for (name, size), of_one in groups.items():
        low, high = of_one[0].dimension.min, of_one[0].dimension.max
        found.append(
            Range(
                name,
                size,
                low=min(size, 2) if low is None else low,
                high=2 * size if high is None else high,
                keys=tuple(each.key for each in of_one),
            )
        )
    return [each for each in found if each.low < each.high]


def _near(ranges: Sequence[Range]) -> list[Point]:
    """Sizes near those of the sample, other ones in each range: larger ones, or where these are out of range
    smaller ones, and the other way round. Some models take even ones alone, or those that eight divides."""
    changes: list[tuple[Callable[[int], int], Callable[[int], int]]] = [
        (lambda size: size + 1, lambda size: size - 1),
        (lambda size: size + 2, lambda size: size - 2),
        (lambda size: 2 * size, lambda size: size // 2),
        (lambda size: 3 * size // 2, lambda size: size // 2),
    ]
    found: list[Point] = []
    for change in [*changes, *((smaller, larger) for larger, smaller in changes)]:
        point = []
        for each in ranges:
            sizes = [other(each.before) for other in change]
            point += [size for size in sizes if max(each.low, 2) <= size <= each.high][:1]
        if len(point) == len(ranges) and tuple(point) not in found:
            found.append(tuple(point))
    return found


def _smallest(ranges: Sequence[Range]) -> list[Point]:
    """The smallest sizes from 2 on, in all ranges at once, as far as there are so many."""
    found = []
    for more in range(_SMALLEST):
        point = tuple(min(max(each.low, 2) + more, each.high) for each in ranges)
        if point not in found and point != tuple(each.before for each in ranges):
            found.append(point)
    return found


def _sizes_at(ranges: Sequence[Range], point: Point) -> Sizes:
    return tuple((each.name, each.before, size) for each, size in zip(ranges, point, strict=True))
