"""docs/tutorial.md, word for word, from an empty directory."""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import REPOSITORY, Page

PAGE = "tutorial.md"


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    Page.read(PAGE).run(tmp_path)


def test_the_page_is_read_as_it_is_written() -> None:
    read = Page.read(PAGE).blocks()
    files = [block.title for block in read if block.language != "console"]
    assert files[0] == files[3] == "pyproject.toml"
    assert "src/moods/samples.py" in files and "ask.py" in files and all(files)
    assert (REPOSITORY / "docs" / PAGE).read_text("utf-8").count("```") == 2 * len(read)
