"""The README's quick start, word for word, from an empty directory."""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import Page


def test_every_command_prints_what_the_quick_start_says(tmp_path: Path) -> None:
    page = Page.read("../README.md")
    assert {"pyproject.toml", "src/textmodel/model.py", "try.py"} < {block.title for block in page.blocks()}
    page.run(tmp_path)
