"""Reading TOML tables into typed structures, with errors that name the key and say what was expected.

Nothing here knows a particular key. A type that is `Annotated` with a description is described by it;
paths are the full keys, as their author wrote them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from hatch_precompile.errors import ConfigError

__all__ = ["check_distinct", "check_keys", "describe", "expected", "quote_key", "read_struct", "read_value"]

_S = TypeVar("_S", bound=Struct)


def check_keys(table: Mapping[str, object], struct: type[Struct], path: str) -> None:
    """Refuse keys the structure does not have, and the lack of those it needs."""
    fields = msgspec.structs.fields(struct)
    known = [field.encode_name for field in fields]
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key.replace("_", "-").lower(), known, n=1)
            advice = f"did you mean {close[0]}?" if close else f"the keys here are {', '.join(known)}"
            raise ConfigError(f"{path}.{quote_key(key)}: unknown key; {advice}")
    for field in fields:
        if field.required and field.encode_name not in table:
            what = describe(field.type)
            raise ConfigError(f"{path}.{field.encode_name}: expected {what}, but the key is missing")


def check_distinct(values: Iterable[tuple[str, str]]) -> None:
    """Refuse the second of two equal values; each comes with its path."""
    seen: dict[str, str] = {}
    for path, value in values:
        if value in seen:
            raise ConfigError(f"{path}: expected a value of its own, got {_quote(value)} as in {seen[value]}")
        seen[value] = path


def read_struct(struct: type[_S], table: Mapping[str, object], path: str, **ready: object) -> _S:
    """The structure with the table's values; `ready` are fields that have been read already."""
    values = {
        field.name: read_value(table[field.encode_name], field.type, f"{path}.{field.encode_name}")
        for field in msgspec.structs.fields(struct)
        if field.encode_name in table and field.name not in ready
    }
    return struct(**values, **ready)


def read_value(value: Any, type_: Any, path: str) -> Any:
    """The value as an instance of the type. Arrays are the only containers looked into."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        inside = re.search(r"`\$\[(\d+)\]`$", str(error))  # "... - at `$[1]`"
        if inside:
            item_type = get_args(get_args(type_)[0])[0]
            item = value[int(inside[1])]
            raise expected(f"{path}[{inside[1]}]", describe(item_type), item) from None
        raise expected(path, describe(type_), value) from None


def expected(path: str, what: str, value: object) -> ConfigError:
    """The error to raise for a value that is not what it should be."""
    return ConfigError(f"{path}: expected {what}, got {_quote(value)}")


def describe(type_: Any) -> str:
    """What a type asks for, in words."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return str(next(meta.description for meta in arguments[1:] if meta.description))
    if origin is Literal:
        *others, last = [f'"{choice}"' for choice in arguments]
        return f"{', '.join(others)} or {last}"
    if origin in (Union, UnionType):
        one, *several = [argument for argument in arguments if argument is not type(None)]
        return describe(one) + (", or an array of such" if several else "")
    if origin is tuple:
        item = describe(arguments[0])
        return "an array of tables" if item == "a table" else f"an array, each item {item}"
    return {bool: "true or false", str: "a string"}.get(type_, "a table")


def quote_key(key: str) -> str:
    """A key as TOML writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _quote(value: object) -> str:
    """A value as its author wrote it, if it is short; else what it is."""
    if isinstance(value, (str, bool, int, float)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        if len(value) <= 4 and all(isinstance(item, (str, bool, int, float)) for item in value):
            return f"[{', '.join(map(_quote, value))}]"
        return "an array"
    return "a table" if isinstance(value, dict) else str(value)
