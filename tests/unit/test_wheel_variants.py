"""docs/wheel-variants.md has a row for every name of a variant, with a property that the draft allows."""

from __future__ import annotations

import re
from pathlib import Path

from hatch_precompile.backends import known
from hatch_precompile.config.cells import Cell

PAGE = (Path(__file__).parents[2] / "docs" / "wheel-variants.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE))
CELL = Cell("3.11", "2.13.0")

# PEP 825, "Variant properties".
PROPERTY = re.compile(r"`([a-z0-9_]+) :: ([a-z0-9_]+) :: ([a-z0-9_.]+)`")


def test_every_variant_and_each_part_of_a_cell_has_a_row() -> None:
    variants = [f"variant `{name}`" for name in known()]
    cell = [f"{part} of the cell `{CELL.name}`" for part in ("torch", "Python")]
    assert sorted(ROWS) == sorted(["here", "---", *variants, *cell])


def test_what_has_a_property_has_one_that_the_draft_allows() -> None:
    levels = {}
    for name in known():
        text = ROWS[f"variant `{name}`"]
        if text.startswith("none: "):
            continue
        found = PROPERTY.fullmatch(text)
        assert found and found.groups()[:2] == ("x86_64", "level")
        levels[name] = found[3]
    arm = {name for name in known() if name.startswith(("armv8", "cuda"))}
    assert set(known()) - set(levels) == {"native", "x86-64-v4-bf16", *arm}
    # x86-64 is the first level; the others end with theirs.
    assert all(level == (name.rpartition("-")[2] if "-v" in name else "v1") for name, level in levels.items())


def test_the_torch_of_a_cell_is_a_value_as_it_stands() -> None:
    found = PROPERTY.fullmatch(ROWS[f"torch of the cell `{CELL.name}`"])
    assert found and found.groups()[1:] == ("torch", CELL.torch)
