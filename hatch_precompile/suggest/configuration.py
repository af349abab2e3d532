"""A suggestion as the TOML that goes into a project's configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tomlkit

from hatch_precompile.config import Dimension
from hatch_precompile.escaping import in_a_comment
from hatch_precompile.suggest.suggestion import Suggestion

__all__ = ["toml_of"]


def toml_of(suggestion: Suggestion, file: str) -> str:
    """The entrypoint's table, with comments that say what it is for. file: the record for its samples."""
    lines = [f"# {in_a_comment(line)}" for line in _comments(suggestion)]
    body = tomlkit.dumps(_table(suggestion, file))
    header = suggestion.table.removeprefix("hatch.toml: ")
    return "\n".join([*lines, f"[[{header}.entrypoints]]", body])


def _comments(suggestion: Suggestion) -> Iterator[str]:
    name = suggestion.entrypoint.name
    hits = f", {suggestion.hits} of them hits" if suggestion.complete else ", all of them misses"
    share = math.floor(1000 * suggestion.served / suggestion.calls) / 10  # 100 % is every call
    yield f"{name}: {suggestion.calls} calls recorded{hits}; this serves {suggestion.served} ({share} %)"
    if not suggestion.complete:
        yield "What hit is not in the record: use one of record-all, or keep the samples that made it hit."
    if "workload" in suggestion.written:
        yield "Samples take the place of the workload; name an instance if the class needs arguments."
    for count, why in suggestion.left_out:
        yield f"left out: {count} {'call' if count == 1 else 'calls'}, {why}"


def _table(suggestion: Suggestion, file: str) -> dict[str, Any]:
    entrypoint = suggestion.entrypoint
    table = {key: value for key, value in suggestion.written.items() if key != "workload"}
    table["samples"] = f"recorded:{file}"
    if len(entrypoint.modes) > 1 or "mode" in table:
        table["mode"] = list(entrypoint.modes) if len(entrypoint.modes) > 1 else entrypoint.modes[0]
    if entrypoint.dynamic_numbers:
        table["dynamic-numbers"] = list(entrypoint.dynamic_numbers)
    if entrypoint.dynamic_shapes:
        table["dynamic-shapes"] = _shapes(entrypoint.dynamic_shapes)
    return table


def _shapes(shapes: dict[str, dict[int, Dimension]]) -> Any:
    """Inline: the range with the first dimension of a name, the name alone with the others."""
    told: set[str] = set()
    result = tomlkit.inline_table()
    for argument, dimensions in shapes.items():
        inner = tomlkit.inline_table()
        for index, dimension in dimensions.items():
            inner[str(index)] = dimension.name if dimension.name in told else _dimension(dimension)
            told.add(dimension.name)
        result[argument] = inner
    return result


def _dimension(dimension: Dimension) -> Any:
    if dimension.min is None and dimension.max is None:
        return dimension.name
    table = tomlkit.inline_table()
    table["name"] = dimension.name
    for key, value in (("min", dimension.min), ("max", dimension.max)):
        if value is not None:
            table[key] = value
    return table
