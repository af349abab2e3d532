"""Every case of a program: the changes that are for it, the mutations of its sources, its patched places."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from tests.truth.building import Built
from tests.truth.catalogue import SOURCES, Program
from tests.truth.changes import CHANGES, Change
from tests.truth.mutations import mutations_of
from tests.truth.reach import reachable

__all__ = ["Case", "cases_of", "exploration_of", "only_kinds"]

EXPLORATION = "which places there are"

SHARES = {
    "data": 6,
    "switch": 8,
    "mode": 4,
    "patch": 6,
    "transform": 3,
    "others": 2,
    "environment": 5,
    "environment at start": 8,
}
"""Of changes of these kinds, each program gets one in so many, another share than the next program."""


@dataclass(frozen=True)
class Case:
    """One program and one change. `files`: the text of sources that are another, by their place."""

    program: Program
    change: Change
    what: str
    kind: str
    harmless: bool
    parameter: Any = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same in every run, as long as the case is."""
        facts = [self.program.name, self.change.name, self.what, self.parameter, self.files]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.change.environment.items()))


def exploration_of(program: Program) -> Case:
    """The process that looks for places; `cases_of` wants its answer."""
    names: dict[str, list[str]] = {}
    for definition in reachable(program):
        names.setdefault(definition.module, []).append(definition.name)
    change = CHANGES[EXPLORATION]
    return Case(program, change, change.name, change.kind, False, names)


def cases_of(built: Built, places: list[list[str]], *, every: bool = False) -> list[Case]:
    """every: leave none out."""
    program = built.program
    cases = [
        Case(program, change, change.name, change.kind, _is_harmless(change, program))
        for number, change in enumerate(CHANGES.values())
        if change.listed and _is_for(change, program) and (every or _in_share(change, number, program))
    ]
    source = CHANGES["the source is another"]
    for mutation in mutations_of(program):
        cases.append(
            Case(
                program,
                source,
                mutation.what,
                f"source: {mutation.kind}",
                mutation.harmless,
                files={mutation.file: mutation.text},
            )
        )
    for place in places:
        for when in (" before the first call", " between two calls", ", then put back"):
            change = CHANGES[f"a place of the program is patched{when}"]
            what = f"{' '.join(place)} is patched{when}"
            cases.append(Case(program, change, what, "patch of its own", False, place))
    return cases


def only_kinds(cases: list[Case], wanted: list[str]) -> list[Case]:
    """Those whose kind or words contain one of the words given."""
    return [case for case in cases if any(word in f"{case.kind}: {case.what}" for word in wanted)]


def _is_for(change: Change, program: Program) -> bool:
    if change.kind == "signal" and not program.signals:
        return False
    if change.compiler and program.compiles:
        return False
    return not change.only or bool({program.kind, program.name} & set(change.only))


def _is_harmless(change: Change, program: Program) -> bool:
    if not change.harmless:
        return False
    texts = "\n".join(_text(definition) for definition in reachable(program))
    return not any(word in texts for word in change.reads)


def _text(definition: Any) -> str:
    lines = (SOURCES / definition.file).read_text().splitlines()
    return "\n".join(lines[definition.node.lineno - 1 : definition.node.end_lineno])


def _in_share(change: Change, number: int, program: Program) -> bool:
    share = SHARES.get(change.kind, 1)
    if change.only:
        return True
    place = int(hashlib.sha256(program.name.encode()).hexdigest(), 16)
    return (number + place) % share == 0
