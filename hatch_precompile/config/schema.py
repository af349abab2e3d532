"""The configuration table as a JSON schema, for editors and for validate-pyproject.

The schema is made from the structures of model.py and lies beside them as schema.json, which
generate_docs.py writes. The functions that validate-pyproject calls read that file.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import textwrap
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from hatch_precompile.backends import known
from hatch_precompile.config import Config, Dimension, Entrypoint, Matrix
from hatch_precompile.config.model import HATCH_KEYS

__all__ = ["describe_fields", "hatch", "setuptools", "table_schema"]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_GROUP = "validate_pyproject.tool_schema"
_HOME = "https://hatch-precompile.invalid"  # an id has to look like an address; nothing is there


def setuptools(_tool: str) -> dict[str, Any]:
    """`tool.hatch-precompile`, the table of projects on setuptools."""
    return _stored()


def hatch(tool: str) -> dict[str, Any]:
    """`tool.hatch`, of which only this hook's tables are looked at.

    validate-pyproject has one schema for each table below `tool`, and this one replaces every other for
    `tool.hatch`. So where another plugin has one, it is taken in: what it asks for holds as well.
    """
    hook = {"$ref": "#/definitions/hook"}
    hooks = _nested(["hooks", "precompile"], hook)
    build = {"properties": {**hooks["properties"], **_nested(["targets", "wheel"], hooks)["properties"]}}
    parts = {"hook": _for_hatch(_stored())}
    for point in entry_points(group=_GROUP, name=tool):
        if point.module != __name__:
            parts[point.module] = point.load()(tool)
    others = [{"$ref": f"#/definitions/{name}"} for name in parts if name != "hook"]
    return {
        "$schema": _DRAFT,
        "$id": f"{_HOME}/hatch.schema.json",
        "title": "Hatch, with the build hook of hatch-precompile",
        "type": "object",
        "properties": {"build": build},
        **({"allOf": others} if others else {}),
        "definitions": {name: _moved(part, f"#/definitions/{name}") for name, part in parts.items()},
    }


def table_schema() -> dict[str, Any]:
    """The schema of the table, made from the structures."""
    _, definitions = msgspec.json.schema_components([Config], ref_template="#/definitions/{name}")
    for struct in (Config, Matrix, Entrypoint, Dimension):
        _describe(definitions[struct.__name__], struct)
    table = definitions.pop("Config")
    # The wheel tells it where it holds only one.
    table["required"].remove("package")
    table["properties"]["variants"]["items"] = {"enum": list(known())}
    table["properties"]["entrypoints"]["minItems"] = 1
    definitions["Entrypoint"]["oneOf"] = [
        {"required": ["samples"]},
        {"required": ["workload"], "not": {"required": ["instance"]}},
    ]
    # The one key whose form in TOML is another than in the structures.
    (name,) = [field for field in msgspec.structs.fields(Dimension) if field.name == "name"]
    shapes = definitions["Entrypoint"]["properties"]["dynamic-shapes"]
    shapes["additionalProperties"] = {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"},
        "additionalProperties": {
            "anyOf": [
                _portable(msgspec.json.schema(name.type)),
                {"$ref": "#/definitions/Dimension"},
            ]
        },
    }
    return {
        "$schema": _DRAFT,
        "$id": f"{_HOME}/table.schema.json",
        **_portable(table),
        "definitions": _portable(definitions),
    }


@functools.cache
def describe_fields(struct: type[Struct]) -> dict[str, str]:
    """The docstring of each field, which Python does not keep, by the name of the key."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                texts[name] = " ".join(words.split())
    return {
        field.encode_name: texts[field.name]
        for field in msgspec.structs.fields(struct)
        if field.name in texts
    }


def _describe(schema: dict[str, Any], struct: type[Struct]) -> None:
    for key, text in describe_fields(struct).items():
        # Links are the page's.
        schema["properties"][key]["description"] = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)


def _portable(schema: Any) -> Any:
    """The schema for TOML, which has no null, and for the regular expressions of JavaScript."""
    if isinstance(schema, list):
        return [_portable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    choices = schema.get("anyOf", [])
    if {"type": "null"} in choices:
        (only,) = [choice for choice in choices if choice != {"type": "null"}]
        schema = only | {key: value for key, value in schema.items() if key != "anyOf"}
    return {
        key: re.sub(r"\\[AZ]", lambda end: "^" if end[0] == r"\A" else "$", value)
        if key == "pattern"
        else _portable(value)
        for key, value in schema.items()
        if key != "default" or value not in (None, "")
    }


def _for_hatch(schema: dict[str, Any]) -> dict[str, Any]:
    """The table as Hatch has it: its own keys for every hook are in it as well."""
    own: dict[str, Any] = {key: {"description": "A key of Hatch's own."} for key in sorted(HATCH_KEYS)}
    return schema | {"properties": own | schema["properties"]}


def _nested(path: list[str], schema: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(path):
        schema = {"properties": {key: schema}}
    return schema


def _moved(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """A whole schema as a part of another, at `place`: what it calls its root is not the root there."""

    def move(value: Any) -> Any:
        if isinstance(value, list):
            return [move(item) for item in value]
        if not isinstance(value, dict):
            return value
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            return {**value, "$ref": place + ref.removeprefix("#")}
        return {key: move(item) for key, item in value.items()}

    return {key: move(value) for key, value in schema.items() if key not in ("$id", "$schema")}


def _stored() -> dict[str, Any]:
    text = files("hatch_precompile.config").joinpath("schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
