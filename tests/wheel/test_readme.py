"""The README's quick start, word for word, from an empty directory."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.pages import Page


def test_every_command_prints_what_the_quick_start_says(tmp_path: Path) -> None:
    page = Page.read("../README.md")
    assert {"pyproject.toml", "src/textmodel/model.py", "try.py"} < {block.title for block in page.blocks()}
    if torch.__version__ < (2, 13):  # which breaks the graph in a transformer's layer
        once = "textmodel._precompiled: hit of encoder: Encoder.forward, entry 0\n"
        again = once.replace("forward, entry 0", "torch_dynamo_resume_in_forward_at_12, entry 1")
        assert once in page.text
        page = Page(page.text.replace(once, once + again).replace("2 entries", "4 entries"))
    page.run(tmp_path)
