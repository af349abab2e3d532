"""The documentation as a site: every page is in it, and no link leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def links(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"
        assert page.parent != DOCS or target.is_relative_to(DOCS), f"{page.name}: {link} is not of the site"


def test_every_page_is_in_the_navigation_and_on_the_first_page() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    first = (DOCS / "index.md").read_text("utf-8")
    for page in PAGES:
        assert page.name in navigation
        assert page.name == "index.md" or f"({page.name})" in first


def test_the_way_of_the_data_is_drawn() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", (DOCS / "how-it-works.md").read_text("utf-8"), re.DOTALL)
    for room in ("configuration", "capture", "lower", "bundle", "verify", "install", "call"):
        assert room in picture


@pytest.mark.skipif(find_spec("material") is None, reason="mkdocs-material is not installed; `make docs`")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"^WARNING", done.stderr, re.MULTILINE)
    assert 'class="mermaid"' in (tmp_path / "site" / "how-it-works.html").read_text("utf-8")
