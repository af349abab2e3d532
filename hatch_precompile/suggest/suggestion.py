"""From a project and records to a suggestion for each of its entrypoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.errors import ConfigError
from hatch_precompile.suggest.variation import widened
from hatch_precompile.traffic.reading import Call, Recording
from hatch_precompile.traffic.samples import MOST
from hatch_precompile.traffic.structures import Structure, in_words, structures_of

__all__ = ["Configured", "Suggestion", "suggestions"]


@dataclass(frozen=True)
class Configured:
    """A table as its author wrote it, its name, and what is read of it."""

    table: str
    written: Mapping[str, Any]
    config: Config


@dataclass(frozen=True)
class Suggestion:
    """What is proposed for one entrypoint.

    calls, hits: how many were recorded, and served; complete: whether those served were recorded at all;
    samples: the calls that need one; left_out: (number of calls, why).
    """

    package: str
    table: str
    written: Mapping[str, Any]
    entrypoint: Entrypoint
    calls: int
    hits: int
    complete: bool
    samples: tuple[Structure, ...]
    left_out: tuple[tuple[int, str], ...]

    @property
    def served(self) -> int:
        """How many of the calls it would serve."""
        return sum(structure.count for structure in self.samples)


def suggestions(
    tables: Sequence[Configured], record: Recording, *, rare: float
) -> tuple[list[Suggestion], list[str]]:
    """For each configured entrypoint with calls in the record; and what is to be noted.

    rare: the share of an entrypoint's calls below which a kind of call gets no sample. Raises ConfigError
    where no call is of a configured entrypoint.
    """
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in record.calls:
        groups.setdefault((call.package, call.entrypoint), []).append(call)
    found: list[Suggestion] = []
    notes = []
    for (package, name), calls in sorted(groups.items()):
        configured = _find(tables, package, name)
        if configured is None:
            notes.append(f"{_sum(calls)} calls of {package}:{name}, which this project does not configure")
        else:
            found.append(_suggestion(*configured, package, calls, rare))
    if not found:
        raise ConfigError(f"the record has nothing of this project: {'; '.join(notes)}")
    if record.damaged:
        notes.append(f"{record.damaged} damaged lines of the record were skipped")
    if record.full:
        notes.append("the record was full, so later calls are not in it")
    return found, notes


def _find(
    tables: Sequence[Configured], package: str, name: str
) -> tuple[Configured, Entrypoint, Mapping[str, Any]] | None:
    for configured in tables:
        if configured.written.get("package", package) != package:
            continue
        written = configured.written["entrypoints"]
        for entrypoint, table in zip(configured.config.entrypoints, written, strict=True):
            if entrypoint.name == name:
                return configured, entrypoint, table
    return None


def _suggestion(
    configured: Configured,
    entrypoint: Entrypoint,
    written: Mapping[str, Any],
    package: str,
    calls: Sequence[Call],
    rare: float,
) -> Suggestion:
    proposed = widened(entrypoint, calls, rare=rare)
    structures = structures_of(calls, proposed)
    total = _sum(calls)
    kept = tuple(each for each in structures.found if each.count >= rare * total)[:MOST]
    left_out = [(count, why) for why, count in structures.left_out.most_common()]
    left_out += [(each.count, f"rare: {in_words(each.call)}") for each in structures.found[len(kept) :]]
    return Suggestion(
        package=package,
        table=configured.table,
        written=written,
        entrypoint=proposed,
        calls=total,
        hits=sum(call.hits for call in calls),
        complete=all(call.complete for call in calls),
        samples=tuple(_counted(each) for each in kept),
        left_out=tuple(left_out),
    )


def _counted(structure: Structure) -> Structure:
    """The one call with the count of all that it stands for, as a record of samples has it."""
    return replace(structure, call=replace(structure.call, count=structure.count, hits=0))


def _sum(calls: Sequence[Call]) -> int:
    return sum(call.count for call in calls)
