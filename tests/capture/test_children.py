"""Where a build's children come from changes nothing of what is built."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from hatch_precompile import build
from hatch_precompile.config import load
from hatch_precompile.processes import parent

ROOT = Path(__file__).parents[1] / "broken"


def built(work: Path, said: list[str]) -> dict[str, bytes]:
    """The files of a bundle with a model and a function in it."""
    entrypoints = [
        {"target": f"broken.models:{target}", "samples": "broken.models:one", "name": target.lower()}
        for target in ("Fine", "fine")
    ]
    entrypoints[1]["name"] = "function"
    config = load({"entrypoints": entrypoints}, default_package="broken")
    work.mkdir()
    directory = build.build_bundle(config, source_roots=[ROOT], work=work, report=said.append).directory
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_forked_children_build_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    forked = built(tmp_path / "forked", said)
    monkeypatch.setattr(parent, "_servers", {})
    monkeypatch.setattr(build, "children_preloaded", lambda **_: nullcontext())
    assert built(tmp_path / "plain", said) == forked
    assert sum("hit, largest difference from eager 0" in line for line in said) == 4
