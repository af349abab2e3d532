"""`samples = "recorded:FILE"`: from the file to the calls that need a sample, which go with the entrypoint.

What is left is text of some hundred bytes for each sample. It takes the place of the file's name, so that a
wheel can make its samples again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.errors import ConfigError
from hatch_precompile.traffic.reading import read_records
from hatch_precompile.traffic.structures import in_words, structures_of
from hatch_precompile.validation.recorded_calls import calls_in

__all__ = ["MOST", "PREFIX", "embedded_calls", "is_recorded", "with_recorded_calls"]

PREFIX = "recorded:"

MOST = 50
"""So many samples are made of a record: those of the most frequent calls."""


def is_recorded(entrypoint: Entrypoint) -> bool:
    return entrypoint.samples is not None and entrypoint.samples.startswith(PREFIX)


def embedded_calls(entrypoint: Entrypoint) -> list[dict[str, Any]]:
    """The calls to make samples of, in their order. Empty if they are not embedded. Raises OutsideError."""
    text = (entrypoint.samples or "").removeprefix(PREFIX)
    return calls_in(text) if text.startswith("{") else []


def with_recorded_calls(config: Config, root: Path, table: str) -> tuple[Config, list[str]]:
    """The configuration with the calls of records in the place of their files, and what is to be said of it.

    root: the project's folder; table: where the author wrote the configuration. Raises ConfigError, whose
    text starts with the key, where a file cannot be read or has no call that a sample can be made of.
    """
    notes: list[str] = []
    entrypoints = []
    for number, entrypoint in enumerate(config.entrypoints):
        if is_recorded(entrypoint) and not embedded_calls(entrypoint):
            key = f"{table}.entrypoints[{number}].samples" if table else f"entrypoints[{number}].samples"
            made, said = _with_calls(entrypoint, config.package, root, key)
            notes += [f"{entrypoint.name}: {each}" for each in said]
            entrypoints.append(made)
        else:
            entrypoints.append(entrypoint)
    return msgspec.structs.replace(config, entrypoints=tuple(entrypoints)), notes


def _with_calls(entrypoint: Entrypoint, package: str, root: Path, key: str) -> tuple[Entrypoint, list[str]]:
    file = (entrypoint.samples or "").removeprefix(PREFIX)
    try:
        record = read_records([root / file])
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    calls = [call for call in record.calls if (call.package, call.entrypoint) == (package, entrypoint.name)]
    if not calls:
        names = ", ".join(sorted({f"{call.package}:{call.entrypoint}" for call in record.calls}))
        raise ConfigError(
            f"{key}: {file} has no call of {package}:{entrypoint.name}; it has those of {names}"
        )
    structures = structures_of(calls, entrypoint)
    reasons = [f"{count} recorded calls are left out: {why}" for why, count in structures.left_out.items()]
    if not structures.found:
        raise ConfigError(f"{key}: no sample can be made of {file}: {'; '.join(reasons)}")
    kept, rare = structures.found[:MOST], structures.found[MOST:]
    total = sum(call.count for call in calls)
    served = sum(structure.count for structure in kept)
    notes = [f"{len(kept)} samples of {file}, which stand for {served} of {total} recorded calls"]
    notes += [f"sample {number}: {in_words(each.call)}" for number, each in enumerate(kept, 1)]
    notes += reasons
    if rare:
        notes.append(f"{len(rare)} rarer kinds of calls are left out: at most {MOST} samples are made")
    if record.damaged:
        notes.append(f"{record.damaged} damaged lines of {file} are skipped")
    text = json.dumps({"calls": [structure.call.content for structure in kept]}, separators=(",", ":"))
    return msgspec.structs.replace(entrypoint, samples=PREFIX + text), notes
