"""Reading records (templates/recording.py and described.py write them)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hatch_precompile.errors import ConfigError

__all__ = ["Call", "Record", "read_records", "tensors_in", "to_lines"]

_MODES = frozenset({"no_grad", "inference", "grad"})
_DEEPEST = 40


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
class Record:
    """What several files hold together. `damaged`: lines that cannot be read; `full`: whether one stopped
    because it was as large as it may become."""

    calls: tuple[Call, ...]
    damaged: int
    full: bool


def read_records(paths: Iterable[Path]) -> Record:
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
    return Record(tuple(calls.values()), damaged, full)


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
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"the record {path} cannot be read: {error.strerror or error}") from error
        self.damaged = 0
        self.full = False
        self._first: dict[str, Call] = {}
        self._more: dict[str, int] = {}
        lines = [line for line in content.split(b"\n") if line.strip()]
        for line in lines:
            self._read(line)
        self.damaged += len(self._more.keys() - self._first.keys())
        if lines and not self._first and not self.full:
            raise ConfigError(f"{path} is no record: none of its {len(lines)} lines is a recorded call")
        if not self._first:
            raise ConfigError(f"the record {path} is empty: no call was recorded")

    def calls(self) -> Iterator[Call]:
        for identity, call in self._first.items():
            count = call.count + self._more.get(identity, 0)
            yield replace(call, count=count, hits=count if call.hits else 0)

    def _read(self, line: bytes) -> None:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            self.damaged += 1
            return
        if isinstance(value, dict) and "stopped" in value:
            self.full = True
        elif not isinstance(value, dict) or not _is_count(value.get("count")) or not self._take(value):
            self.damaged += 1

    def _take(self, value: dict[str, Any]) -> bool:
        """Whether it was a line of a record."""
        if isinstance(again := value.get("again"), str):
            self._more[again] = self._more.get(again, 0) + value["count"]
            return True
        identity, call = value.get("id"), _call(value)
        if not isinstance(identity, str) or call is None:
            return False
        if identity in self._first:  # of another process
            self._more[identity] = self._more.get(identity, 0) + call.count
        else:
            self._first[identity] = call
        return True


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _call(value: dict[str, Any]) -> Call | None:
    package, entrypoint, content = (value.get(key) for key in ("package", "entrypoint", "call"))
    if not isinstance(package, str) or not isinstance(entrypoint, str) or not isinstance(content, dict):
        return None
    if content == {"too_large": True}:
        content = {"args": [], "kwargs": {}, **content}
    elif not _is_content(content):
        return None
    hits = value["count"] if value.get("served") is True else 0
    return Call(package, entrypoint, content, value["count"], hits, value.get("of") == "all")


def _is_content(content: dict[str, Any]) -> bool:
    args, kwargs = content.get("args"), content.get("kwargs")
    return (
        isinstance(args, list)
        and isinstance(kwargs, dict)
        and content.get("mode") in _MODES
        and all(
            isinstance(each, list)
            and len(each) == 2
            and (each[0] is None or isinstance(each[0], str))
            and _is_value(each[1])
            for each in args
        )
        and all(map(_is_value, kwargs.values()))
    )


def _is_value(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, (bool, int, float)):
        return True
    if not isinstance(value, dict) or depth > _DEEPEST:
        return False
    if "tensor" in value:
        return _is_tensor(value)
    parts = [value[key] for key in ("list", "tuple") if key in value]
    tables = [value[key] for key in ("dict", "items") if key in value]
    if not all(isinstance(part, list) for part in parts) or not all(
        isinstance(part, dict) for part in tables
    ):
        return False
    below = [each for part in parts for each in part] + [each for part in tables for each in part.values()]
    names = [value[key] for key in ("type", "string", "float", "dtype", "device") if key in value]
    if not all(isinstance(name, str) for name in names) or not all(
        _is_value(each, depth + 1) for each in below
    ):
        return False
    return bool(parts or tables or names) or (type(value.get("same")) is int and value["same"] >= 0)


def _is_tensor(value: dict[str, Any]) -> bool:
    sizes = [value[key] for key in ("size", "stride") if key in value]
    return (
        isinstance(value["tensor"], str)
        and ("size" in value or "layout" in value)
        and all(isinstance(each, list) and all(type(n) is int and n >= 0 for n in each) for each in sizes)
        and len({len(each) for each in sizes}) <= 1
        and all(isinstance(value.get(key, ""), str) for key in ("class", "device", "layout"))
    )
