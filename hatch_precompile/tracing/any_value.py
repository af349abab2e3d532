"""Which numbers and sizes dynamo traces for any value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import CodeType
from typing import Any

__all__ = ["AnyValue"]


class AnyValue:
    """Numbers that are declared, and what changes although nothing of it is declared.

    A call of the clock or of `random`, where it breaks a graph, gives another number each time, also where
    the same sample is called again. What code that is not compiled gives has other sizes where the sample is
    called in others.

    numbers: what each floating-point number was in this sample's calls so far
    resized: whether the sample is called in other sizes now
    """

    def __init__(self, declared: Sequence[str]) -> None:
        self.sources = {f"L[{name!r}]" for name in declared}
        self.numbers: dict[tuple[CodeType, str], float] = {}
        self.resized = False
        # Of an input of a frame and its number of dimensions: its sizes in the samples' own calls, and which
        # of them have been others. An int is as one size.
        self._own: dict[tuple[CodeType, str, int], list[tuple[int, ...]]] = {}
        self._changing: dict[tuple[CodeType, str, int], set[int]] = {}

    def next_sample(self) -> None:
        """What differs between samples is what the samples are for."""
        self.numbers.clear()

    def traced(self, code: CodeType, name: str, seen: Any) -> Any:
        """What dynamo is to take for changing: its note on an input of a frame, whose sizes or number are in
        it as they are now, with a mark in place of each that is traced for any value.

        name: of the input, as guards spell it
        seen: a FrameStateSizeEntry
        """
        from torch._dynamo.pgo import auto_dynamic

        if isinstance(seen.size, tuple):
            changing = self._places(code, name, seen.size)
            sizes = (auto_dynamic if place in changing else size for place, size in enumerate(seen.size))
            return dataclasses.replace(seen, size=tuple(sizes))
        if self._changes(code, name, seen.scalar):
            return dataclasses.replace(seen, scalar=auto_dynamic)
        return seen

    def _changes(self, code: CodeType, name: str, value: float) -> bool:
        if name in self.sources:
            return True
        if type(value) is float:
            return self.numbers.setdefault((code, name), value) != value
        return bool(self._places(code, name, (int(value),), dimensions=-1))

    def _places(
        self, code: CodeType, name: str, sizes: tuple[int, ...], dimensions: int | None = None
    ) -> set[int]:
        """Which of an input's sizes change where a sample is called in others."""
        key = code, name, len(sizes) if dimensions is None else dimensions
        own, changing = self._own.setdefault(key, []), self._changing.setdefault(key, set())
        if not self.resized or not own:
            if sizes not in own:
                own.append(sizes)
            return set()
        nearest = min(own, key=lambda each: len(_places_that_differ(each, sizes)))
        changing |= _places_that_differ(nearest, sizes)
        return changing


def _places_that_differ(sizes: Sequence[int], others: Sequence[int]) -> set[int]:
    pairs = enumerate(zip(sizes, others, strict=True))
    return {place for place, (one, other) in pairs if one != other}
