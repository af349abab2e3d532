"""docs/inputs.md is made from the table, which has every kind of record and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatch_precompile.lower.dependencies.table import GROUPS, ROWS, Group, Row, inputs_page
from hatch_precompile.runtime import runtime

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_table() -> None:
    assert (ROOT / "docs/inputs.md").read_text() == inputs_page()


def test_every_kind_that_the_runtime_compares_is_in_the_table() -> None:
    assert {each.kind for each in ROWS} - {""} == set(runtime("dependencies.comparison")._CHECKS)


@pytest.mark.parametrize("each", ROWS, ids=lambda each: each.what[:40])
def test_the_test_it_names_is_there(each: Row) -> None:
    file, *names = each.test.split("::")
    source = (ROOT / file).read_text()
    for name in names:
        assert re.search(rf"(class|def) {name}\b", source)
    parts = each.case.split("-") if "TestHooks" in each.test else [each.case]
    assert all(part in source for part in parts)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.heading)
def test_each_has_its_test_on_the_page(group: Group) -> None:
    """With it, or above the list for all that have no other."""
    page = " ".join((ROOT / "docs/inputs.md").read_text().split())
    above = {test.rpartition("::")[2] for test in group.tests}
    assert all(f"`{test}`" in page for test in above)
    for each in group.rows:
        assert each.test in group.tests or f"(`{each.test}`)" in page
        assert each.test not in group.tests or each.kept
