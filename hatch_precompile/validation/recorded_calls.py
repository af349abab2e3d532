"""Records of calls (modules of templates/recording/ write them), line by line."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from hatch_precompile.errors import ConfigError, OutsideError
from hatch_precompile.formatting import in_bytes

__all__ = ["Line", "calls_in", "lines_of"]

_LARGEST = 64 << 20  # bytes of a file: a process writes 1 MB
_LONGEST = 64 << 10  # bytes of a line: a process writes 16 kB
_DEEPEST = 40
_DIMENSIONS = 64
_SIZE = 1 << 40
_NUMBER = 1 << 63
_COUNT = 1 << 53  # what a float still counts

_MODES = ("no_grad", "inference", "grad")
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[\w.-]+")

Line = dict[str, Any]
"""Of three kinds: one has "call", "package", "entrypoint", "id" and "count"; one "again", which is an id, and
"count"; one "stopped"."""


def lines_of(file: Path) -> Iterator[Line | None]:
    """What stands in each line that is not empty, None for one that is damaged.

    Raises ConfigError for a file that is none, cannot be read, or is larger than several records together.
    """
    for line in _content(file).split(b"\n"):
        if line.strip():
            yield _line(line)


def calls_in(text: str) -> list[dict[str, Any]]:
    """The calls that go with an entrypoint in the place of a record's name: a JSON object with `calls`.

    Raises OutsideError for anything else.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    calls = value.get("calls") if isinstance(value, dict) else None
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        raise OutsideError("the recorded calls that the samples are made of are damaged")
    return calls


def _content(file: Path) -> bytes:
    try:
        about = file.stat()
        if stat.S_ISREG(about.st_mode) and about.st_size <= _LARGEST:
            return file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"the record {file} cannot be read: {reason}") from error
    if stat.S_ISREG(about.st_mode):
        raise ConfigError(
            f"the record {file} has {in_bytes(about.st_size)}, and {in_bytes(_LARGEST)} are the most"
        )
    what = "a folder" if stat.S_ISDIR(about.st_mode) else "no regular file"
    raise ConfigError(f"the record {file} cannot be read: it is {what}")


def _line(line: bytes) -> Line | None:
    if len(line) > _LONGEST:
        return None
    try:
        value = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_line(value) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _is_line(value: dict[str, Any]) -> bool:
    if "stopped" in value:
        return True
    if type(count := value.get("count")) is not int or not 0 < count < _COUNT:
        return False
    if "again" in value:
        return _is_text(value["again"])
    names = (value.get(key) for key in ("package", "entrypoint"))
    return (
        _is_text(value.get("id"))
        and all(isinstance(name, str) and _NAME.fullmatch(name) for name in names)
        and (value.get("call") == {"too_large": True} or _is_call(value.get("call")))
    )


def _is_text(value: Any) -> bool:
    """Whether it is a string, and one that can be encoded."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict):
        return False
    args, kwargs = call.get("args"), call.get("kwargs")
    return (
        isinstance(args, list)
        and isinstance(kwargs, dict)
        and call.get("mode") in _MODES
        and _is_text(call.get("owner", ""))
        and all(
            isinstance(each, list)
            and len(each) == 2
            and (each[0] is None or _is_text(each[0]))
            and _is_value(each[1])
            for each in args
        )
        and all(_is_text(name) and _is_value(each) for name, each in kwargs.items())
    )


def _is_value(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, float):
        return math.isfinite(value)  # 1e999 is not
    if isinstance(value, int):
        return -_NUMBER <= value < _NUMBER
    if not isinstance(value, dict) or depth > _DEEPEST:
        return False
    if "tensor" in value:
        return _is_tensor(value)
    parts = [value[key] for key in ("list", "tuple") if key in value]
    tables = [value[key] for key in ("dict", "items") if key in value]
    if not all(isinstance(part, list) for part in parts) or not all(
        isinstance(part, dict) and all(map(_is_text, part)) for part in tables
    ):
        return False
    below = [each for part in parts for each in part] + [each for part in tables for each in part.values()]
    names = [value[key] for key in ("type", "string", "float", "dtype", "device") if key in value]
    if not all(map(_is_text, names)) or not all(_is_value(each, depth + 1) for each in below):
        return False
    return bool(parts or tables or names) or _is_size(value.get("same"))


def _is_tensor(value: dict[str, Any]) -> bool:
    sizes = [value[key] for key in ("size", "stride") if key in value]
    return (
        isinstance(value["tensor"], str)
        and _WORD.fullmatch(value["tensor"]) is not None
        and ("size" in value or "layout" in value)
        and all(
            isinstance(each, list) and len(each) <= _DIMENSIONS and all(map(_is_size, each)) for each in sizes
        )
        and len({len(each) for each in sizes}) <= 1
        and all(_is_text(value.get(key, "")) for key in ("class", "device", "layout"))
        and all(isinstance(value.get(key, False), bool) for key in ("requires_grad", "inference"))
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _SIZE
