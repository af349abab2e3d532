"""When a build did what: its events as bars on a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hatch_precompile.events import Event

__all__ = ["Bar", "Lane", "Timeline", "timeline"]

# What ends what, with the words for it. A step that is not here begins and ends nothing.
_ENDS = {"sample-end": "sample", "graph-end": "graph", "variant-end": "variant"}


@dataclass(frozen=True)
class Bar:
    """One step. `left` and `width` in percent of the whole; `kind`: for its colour."""

    kind: str
    label: str
    seconds: float
    left: float
    width: float
    variant: str


@dataclass(frozen=True)
class Lane:
    """One entrypoint: its steps, and below them what was compiled meanwhile."""

    name: str
    steps: list[Bar]
    compiled: list[Bar]


@dataclass(frozen=True)
class Timeline:
    """`ticks`: seconds and where they stand, in percent."""

    seconds: float
    ticks: list[tuple[str, float]]
    lanes: list[Lane]


@dataclass(frozen=True)
class _Span:
    kind: str
    label: str
    start: float
    end: float
    variant: str = ""


def timeline(events: Sequence[Event]) -> Timeline:
    """The lanes of all entrypoints, in the order in which they began."""
    timed = [event for event in events if event.time]
    first = min((event.time for event in timed), default=0.0)
    whole = max((event.time for event in timed), default=0.0) - first or 1.0

    def bar(span: _Span) -> Bar:
        seconds = span.end - span.start
        return Bar(
            span.kind,
            span.label,
            seconds,
            round(100 * (span.start - first) / whole, 3),
            round(max(100 * seconds / whole, 0.15), 3),
            span.variant,
        )

    lanes = []
    for name in dict.fromkeys(event.entrypoint for event in timed if event.entrypoint):
        spans = list(_spans([event for event in timed if event.entrypoint == name]))
        # A graph before its variants, which are drawn upon it.
        compiled = [bar(span) for kind in ("graph", "variant") for span in spans if span.kind == kind]
        steps = [bar(span) for span in spans if span.kind not in ("graph", "variant")]
        lanes.append(Lane(name, steps, compiled))
    return Timeline(whole, list(_ticks(whole)), lanes)


def _spans(events: Sequence[Event]) -> Iterator[_Span]:
    """The steps of one entrypoint."""
    for phase in ("capture", "verify"):
        of_phase = [event for event in events if event.phase == phase]
        open_: dict[tuple[str, int, int | None, str], Event] = {}
        before: Event | None = None
        for event in of_phase:
            if before is not None and before.step in ("start", "import"):
                yield _Span("start", _starting(before), before.time, event.time)
            before = event if event.step in ("start", "import") else None
            if event.step in _ENDS:
                begun = open_.pop(_key(_ENDS[event.step], event), None)
                if begun is not None:
                    kind = phase if begun.step == "sample" else begun.step
                    yield _Span(kind, _words(begun, event), begun.time, event.time, begun.variant)
            else:
                open_[_key(event.step, event)] = event


def _key(step: str, event: Event) -> tuple[str, int, int | None, str]:
    return step, event.sample, event.graph, event.variant if step == "variant" else ""


def _starting(event: Event) -> str:
    if event.step == "import":
        return "the target is imported and its instance and samples are made"
    return "a process starts and imports torch"


def _words(begun: Event, ended: Event) -> str:
    if begun.step == "sample":
        verb = "verified" if begun.phase == "verify" else "traced"
        found = "" if ended.difference is None else f", largest difference from eager {ended.difference:.1e}"
        return f"sample {begun.sample} is {verb}{found}"
    if begun.step == "variant":
        return f"graph {begun.graph} is compiled for {begun.variant}"
    return f"graph {begun.graph}, {begun.operations} operations"


def _ticks(seconds: float) -> Iterator[tuple[str, float]]:
    """At most ten round numbers of seconds."""
    size = 10 ** math.floor(math.log10(seconds / 10))
    step = next(factor * size for factor in (1, 2, 5, 10) if seconds / (factor * size) <= 10)
    for number in range(int(seconds / step) + 1):
        yield f"{number * step:g} s", round(100 * number * step / seconds, 3)
