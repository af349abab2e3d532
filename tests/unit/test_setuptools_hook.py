"""The hook for setuptools: what it says is in the words of its own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from setuptools import Distribution
from setuptools.errors import SetupError

from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.setuptools import _add_bundle, finalize

ENTRYPOINT = {"target": "textmodel:encode", "samples": "textmodel:samples"}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"variants": ["x86-64-v9"], "entrypoints": [ENTRYPOINT]}, "variants"),
        ({"variants": ["x86-64-v3"] * 2, "entrypoints": [ENTRYPOINT]}, "variants[1]"),
        ({"entrypoints": []}, "entrypoints"),
        ({"entrypoints": [{**ENTRYPOINT, "mode": "fast"}]}, "entrypoints[0].mode"),
    ],
)
def test_an_error_names_the_key_as_its_author_wrote_it(
    tmp_path: Path, table: dict[str, Any], key: str
) -> None:
    (tmp_path / "textmodel").mkdir()
    (tmp_path / "textmodel" / "__init__.py").write_text("")
    with pytest.raises(BuildError) as caught:
        _add_bundle(tmp_path, ["textmodel/__init__.py"], table)
    assert str(caught.value).startswith(f"tool.hatch-precompile.{key}: ")


def test_hatchs_table_is_no_table_of_setuptools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n'
        "[tool.hatch.build.hooks.precompile]\n"
    )
    monkeypatch.chdir(tmp_path)
    dist = Distribution({"name": "textmodel", "py_modules": []})
    finalize(dist)
    command = dist.get_command_obj("bdist_wheel")
    command.ensure_finalized()
    with pytest.raises(
        SetupError, match=r"setuptools does not read this table; call it tool\.hatch-precompile"
    ):
        command.run()
