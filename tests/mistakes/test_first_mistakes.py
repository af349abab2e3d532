"""Each of the first mistakes ends the build in a sentence, before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hatchling.builders.wheel import WheelBuilder
from hatchling.plugin.manager import PluginManager

import hatch_precompile.frontends.hatch
from tests.conftest import preload
from tests.mistakes.first_mistakes import MISTAKES, PROJECT, Mistake


def write(root: Path, mistake: Mistake) -> None:
    files = dict(PROJECT)
    for path, change in mistake.changes.items():
        if change is None:
            del files[path]
        elif isinstance(change, tuple):
            assert change[0] in files[path]
            files[path] = files[path].replace(*change)
        else:
            files[path] = change
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_it_is_told_how_to_go_on(
    mistake: Mistake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, mistake)
    preload()
    plugins = PluginManager()
    plugins.manager.register(hatch_precompile.frontends.hatch)
    plugins.third_party_plugins.loaded = True
    builder = WheelBuilder(str(tmp_path), plugin_manager=plugins)
    with pytest.raises(SystemExit) as ended:
        list(builder.build(directory=str(tmp_path / "dist"), versions=["standard"]))
    assert ended.value.code == 1
    told = capsys.readouterr().err
    sentence = told[told.index("precompile: ") :]
    assert mistake.told in sentence
    assert len(sentence.splitlines()) <= 4
    if mistake.name != "floats for word numbers" or torch.__version__ >= (
        2,
        13,
    ):  # before, it traces
        assert "compiling" not in told
    assert not list(tmp_path.glob("dist/*.whl"))
