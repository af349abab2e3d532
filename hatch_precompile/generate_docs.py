"""Writes what is made from the code: `python -m hatch_precompile.generate_docs`, in a checkout.

From config/model.py: config/schema.json, and the lists of keys in docs/configuration.md. From
lower/dependencies/table.py: docs/inputs.md. Tests compare them.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from hatch_precompile.config import Config, Dimension, Entrypoint, Matrix
from hatch_precompile.config.reading import describe
from hatch_precompile.config.schema import describe_fields, table_schema
from hatch_precompile.lower.dependencies.table import inputs_page

__all__ = ["schema_text", "with_keys"]

_WIDTH = 120


def schema_text() -> str:
    """config/schema.json."""
    return json.dumps(table_schema(), indent=2) + "\n"


def with_keys(page: str) -> str:
    """The page with the keys of each structure between the two comments that name it."""
    for struct in (Config, Matrix, Entrypoint, Dimension):
        start, end = (f"<!-- {struct.__name__}:{where} -->" for where in ("start", "end"))
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = "\n".join([before + start, "", *_keys(struct), end + after])
    return page


def _keys(struct: type[Struct]) -> Iterator[str]:
    schema = table_schema()
    required = schema["definitions"].get(struct.__name__, schema)["required"]
    texts = describe_fields(struct)
    for field in msgspec.structs.fields(struct):
        default = _default(field)
        needed = " Required." if field.encode_name in required else f" Default: {default}." if default else ""
        yield f"### {field.encode_name}\n"
        yield textwrap.fill(texts[field.encode_name], _WIDTH, break_on_hyphens=False) + "\n"
        yield f"Type: {describe(field.type)}.{needed}\n"


def _default(field: FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return ""
    value: Any = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "" if value in (None, "", {}) else f"`{json.dumps(value)}`"


def main() -> None:
    plugin = Path(__file__).resolve().parent
    (plugin / "config/schema.json").write_text(schema_text(), "utf-8")
    page = plugin.parent / "docs" / "configuration.md"
    page.write_text(with_keys(page.read_text("utf-8")), "utf-8")
    (page.parent / "inputs.md").write_text(inputs_page(), "utf-8")


if __name__ == "__main__":
    main()
