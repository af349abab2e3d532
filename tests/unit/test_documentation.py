"""The documentation names tests that exist, and pages that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("[!.]*/README.md")])


def names_in(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text() if file.is_file() else ""))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(test_\w+)`", page.read_text())
    missing = [(file, name) for file, name in named if name not in names_in(REPOSITORY / file)]
    assert missing == []


def test_the_list_of_faults_names_a_test_for_each() -> None:
    text = (REPOSITORY / "docs/faults.md").read_text()
    faults = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
    assert len(faults) > 40
    assert [fault for fault in faults if "::test_" not in fault] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_page_that_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
