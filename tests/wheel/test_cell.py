"""A cell, built by the way of a matrix: the wheel is the one that any front end builds, byte for byte."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hatch_precompile.config.cells import this_cell
from hatch_precompile.matrix.cell import Task, build_cell
from hatch_precompile.matrix.source import Source
from tests.wheel.conftest import EPOCH, TORCH, Built, build

# Stands for uv, whose environments would need a network: the one it makes is this one, with the plugin.
UV = """#!{python}
import sys
from pathlib import Path

if sys.argv[1] == "venv":
    made = Path(sys.argv[-1], "bin", "python")
    made.parent.mkdir(parents=True)
    made.write_text(Path({wrapper!r}).read_text())
    made.chmod(0o755)
"""
WRAPPER = """#!{python}
import os, sys

arguments = sys.argv[1:]
first = arguments.index("--dependency-constraints-txt")
arguments[first : first + 4] = ["--no-isolation"]
os.environ["PYTHONPATH"] = {plugin!r}
os.execv({python!r}, [{python!r}, *arguments])
"""


@pytest.fixture
def installer(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "installer"
    folder.mkdir()
    wrapper = folder / "wrapper"
    wrapper.write_text(WRAPPER.format(python=sys.executable, plugin=str(built.plugin)))
    uv = folder / "uv"
    uv.write_text(UV.format(python=sys.executable, wrapper=str(wrapper)))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("installer")
def test_a_cell_has_the_bytes_of_any_other_build(built: Built, tmp_path: Path) -> None:
    sdist, _ = build(built.project, built.plugin, tmp_path / "sdist", "--sdist")
    task = Task(this_cell(TORCH), Source(sdist.name, sdist.read_bytes()), EPOCH)
    cell = build_cell(task)
    assert cell.name == built.wheel.name
    assert cell.wheel == built.wheel.read_bytes()
    assert cell.page is not None
    assert {event.step for event in cell.events} >= {"start", "graph", "end", "built"}
