"""The hook for setuptools: what it says is in the words of its own table."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from setuptools import Distribution, Extension
from setuptools.errors import SetupError

from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.setuptools import Added, _add_bundle, finalize
from hatch_precompile.wheel.layout import digests

EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&module); }
"""
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


def test_extension_modules_are_built_before_anything_is_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are below the root that the build imports from, and among the files that it verifies."""
    (tmp_path / "textmodel").mkdir()
    (tmp_path / "textmodel" / "__init__.py").write_text("")
    (tmp_path / "textmodel" / "fast.c").write_text(EXTENSION)
    (tmp_path / "pyproject.toml").write_text("[tool.hatch-precompile]\n")
    extension = Extension("textmodel.fast", ["textmodel/fast.c"])
    dist = Distribution({"name": "textmodel", "packages": ["textmodel"], "ext_modules": [extension]})
    dist.script_name, dist.script_args = "setup.py", ["--quiet", "bdist_wheel"]
    monkeypatch.chdir(tmp_path)
    finalize(dist)
    seen = {}

    def add_bundle(root: Path, files: list[str], table: dict[str, Any]) -> Added:
        found = [file for file in files if file.startswith("textmodel/fast.")]
        imported = run([sys.executable, "-c", "import textmodel.fast"], cwd=root, check=False)
        seen[tuple(found)] = imported.returncode
        return Added("cp311-cp311-linux_x86_64", None, digests(files, root))

    monkeypatch.setattr("hatch_precompile.frontends.setuptools._add_bundle", add_bundle)
    dist.parse_command_line()
    dist.run_commands()
    (wheel,) = tmp_path.glob("dist/*.whl")
    assert seen == {(f"textmodel/fast{sysconfig.get_config_var('EXT_SUFFIX')}",): 0}
    assert "cp311-cp311" in wheel.name


@pytest.mark.parametrize("table", ["tool.hatch.build.hooks.precompile", "tool.setuptools.precompile"])
def test_a_table_of_another_name_is_no_table_of_setuptools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n[[{table}.entrypoints]]\n'
    )
    monkeypatch.chdir(tmp_path)
    dist = Distribution({"name": "textmodel", "py_modules": []})
    finalize(dist)
    command = dist.get_command_obj("bdist_wheel")
    command.ensure_finalized()
    with pytest.raises(SetupError, match=rf"{table}: .* call it tool\.hatch-precompile"):
        command.run()
