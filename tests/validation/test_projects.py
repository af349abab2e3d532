"""Projects of strangers: `init` and `plan` read them, and say in a sentence what they cannot read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.config import load
from hatch_precompile.errors import ConfigError
from tests.validation.fabricated import PLAIN

SOURCE = "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"


def made(folder: Path, pyproject: str = PLAIN) -> Path:
    (folder / "p").mkdir()
    (folder / "p" / "__init__.py").write_text("")
    (folder / "p" / "model.py").write_text(SOURCE)
    (folder / "pyproject.toml").write_text(pyproject)
    return folder


def command(name: str, folder: Path) -> Result:
    result = CliRunner().invoke(main, [name, str(folder)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_pipe_among_the_sources_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(made(tmp_path) / "p" / "pipe.py")
    assert "p.model:Net" in command("init", tmp_path).output


@pytest.mark.parametrize(
    "pyproject",
    [
        "tool = 1",
        "[tool]\nhatch = []",
        "[tool.hatch.build.targets.wheel]\npackages = 1",
        "[tool.hatch.build.targets.wheel]\npackages = [1]",
        "build-system = 1",
        "project = []",
        "[project]\ndependencies = 'torch'",
        "[project]\ndependencies = [[]]",
        "[build-system]\nrequires = {}",
        "x = " + "[" * 3000,
    ],
)
def test_a_project_of_other_types_ends_in_a_result_or_a_sentence(tmp_path: Path, pyproject: str) -> None:
    made(tmp_path, pyproject)
    for name in ("init", "plan"):
        assert command(name, tmp_path).exit_code in (0, 1, 2)


def test_a_source_that_is_too_deep_is_not_read(tmp_path: Path) -> None:
    (made(tmp_path) / "p" / "deep.py").write_text("x = " + "-" * 100_000 + "1\n")
    result = command("init", tmp_path)
    assert result.exit_code == 0 and "deep.py" in result.output


@pytest.mark.parametrize("name", ["manifest.json", "cells.json"])
def test_an_entrypoint_does_not_take_the_place_of_a_file_of_the_bundle(name: str) -> None:
    entrypoint = {"target": "p.model:Net", "samples": "p.samples:net", "name": name}
    with pytest.raises(ConfigError, match="is a file of the bundle; choose another name"):
        load({"entrypoints": [entrypoint]}, default_package="p")
