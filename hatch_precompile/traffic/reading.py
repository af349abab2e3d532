"""Reading records (modules of templates/recording/ write them)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hatch_precompile.errors import ConfigError
from hatch_precompile.validation.recorded_calls import Line, lines_of

__all__ = ["Call", "Recording", "read_records", "tensors_in", "to_lines"]


@dataclass(frozen=True)
class Call:
    """One kind of call. `content`: arguments and mode, as they were recorded; `hits`: how many of `count`
    were served; `complete`: whether calls that hit were recorded as well as those that missed."""

    package: str
    entrypoint: str
    content: dict[str, Any]
    count: int
    hits: int
    complete: bool

    @property
    def mode(self) -> str:
        """As `mode` of an entrypoint has it, which calls gradients "train"."""
        mode = str(self.content.get("mode", ""))
        return "train" if mode == "grad" else mode

    @property
    def named(self) -> dict[str, Any]:
        """The arguments that have a name, by it."""
        positional = {name: value for name, value in self.content["args"] if name is not None}
        return {**positional, **self.content["kwargs"]}


@dataclass(frozen=True)
class Recording:
    """What several files hold together. `damaged`: lines that cannot be read; `full`: whether one stopped
    because it was as large as it may become."""

    calls: tuple[Call, ...]
    damaged: int
    full: bool


def read_records(paths: Iterable[Path]) -> Recording:
    """Raises ConfigError for a file that cannot be read, and for one without a single recorded call."""
    calls: dict[tuple[str, str, str], Call] = {}
    damaged = 0
    full = False
    for path in paths:
        found = _File(path)
        for call in found.calls():
            key = (call.package, call.entrypoint, json.dumps(call.content))
            calls[key] = _added(calls[key], call) if key in calls else call
        damaged += found.damaged
        full = full or found.full
    return Recording(tuple(calls.values()), damaged, full)


def to_lines(calls: Iterable[Call]) -> str:
    """A record of these calls, to be read again."""
    lines = []
    for call in calls:
        for served, count in ((False, call.count - call.hits), (True, call.hits)):
            if count:
                line = {
                    "package": call.package,
                    "entrypoint": call.entrypoint,
                    "of": "all" if call.complete else "misses",
                    "served": served,
                    "call": call.content,
                }
                text = json.dumps(line, separators=(",", ":"))
                identity = hashlib.sha256(text.encode()).hexdigest()[:16]
                lines.append(f'{text[:-1]},"id":"{identity}","count":{count}}}\n')
    return "".join(lines)


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, tensor) of each tensor in a recorded value."""
    if not isinstance(value, dict):
        return
    if "tensor" in value:
        yield path, value
    for key in ("list", "tuple"):
        for index, each in enumerate(value.get(key, ())):
            yield from tensors_in(each, f"{path}[{index}]")
    for key, each in {**value.get("dict", {}), **value.get("items", {})}.items():
        yield from tensors_in(each, f"{path}.{key}")


def _added(one: Call, other: Call) -> Call:
    return replace(
        one,
        count=one.count + other.count,
        hits=one.hits + other.hits,
        complete=one.complete and other.complete,
    )


class _File:
    """One file: its lines first, because a count may stand before what it is of."""

    def __init__(self, path: Path) -> None:
        self.damaged = 0
        self.full = False
        self._first: dict[str, Call] = {}
        self._more: dict[str, int] = {}
        lines = list(lines_of(path))
        for line in lines:
            self._take(line)
        self.damaged += len(self._more.keys() - self._first.keys())
        if lines and not self._first and not self.full:
            raise ConfigError(f"{path} is no record: none of its {len(lines)} lines is a recorded call")
        if not self._first:
            raise ConfigError(f"the record {path} is empty: no call was recorded")

    def calls(self) -> Iterator[Call]:
        for identity, call in self._first.items():
            count = call.count + self._more.get(identity, 0)
            yield replace(call, count=count, hits=count if call.hits else 0)

    def _take(self, line: Line | None) -> None:
        if line is None:
            self.damaged += 1
        elif "stopped" in line:
            self.full = True
        elif "again" in line:
            self._more[line["again"]] = self._more.get(line["again"], 0) + line["count"]
        elif line["id"] in self._first:  # of another process
            self._more[line["id"]] = self._more.get(line["id"], 0) + line["count"]
        else:
            self._first[line["id"]] = _call(line)


def _call(line: Line) -> Call:
    content = line["call"]
    if content == {"too_large": True}:
        content = {"args": [], "kwargs": {}, **content}
    hits = line["count"] if line.get("served") is True else 0
    return Call(line["package"], line["entrypoint"], content, line["count"], hits, line.get("of") == "all")
