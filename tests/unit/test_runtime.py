"""The runtime as the plugin sees it: modules whose calls mypy checks (tests/support/misused_runtime.py)."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

from hatch_precompile import runtime
from tests.conftest import REPOSITORY


def for_mypy() -> dict[str, str]:
    """The modules that mypy sees in hatch_precompile/runtime.py, and where they are in `templates`."""
    (block,) = [
        node
        for node in ast.parse(inspect.getsource(runtime)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: f"{node.module}.{alias.name}".removeprefix("templates.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_mypy_sees_the_modules_that_there_are() -> None:
    assert for_mypy() == runtime._PLACES
    assert set(runtime._PLACES) < set(runtime.__all__)


def test_mypy_reads_what_misuses_them() -> None:
    configuration = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["mypy"]
    assert "tests/support/misused_runtime.py" in configuration["files"]
    assert configuration["strict"]  # which warns of an `ignore` that ignores nothing


@pytest.mark.parametrize("name", sorted(runtime._PLACES))
def test_each_is_the_runtimes(name: str) -> None:
    module = getattr(runtime, name)
    expected = REPOSITORY / "templates" / Path(*runtime._PLACES[name].split("."))
    assert Path(inspect.getfile(module)) == expected.with_suffix(".py")


def test_what_is_no_module_of_it_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_module'"):
        runtime.no_such_module  # noqa: B018
    with pytest.raises(ImportError, match="no_such_module"):
        importlib.import_module("hatch_precompile.runtime.no_such_module")


def test_the_plugin_has_no_untyped_way_to_it() -> None:
    """But for a backend's to the folder of its name, which no other file knows."""
    for file in (REPOSITORY / "hatch_precompile").rglob("*.py"):
        called = [
            ast.unparse(node.args[0])
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "runtime"
        ]
        place = file.relative_to(REPOSITORY / "hatch_precompile").as_posix()
        name = place.removeprefix("backends/").partition("/")[0]
        assert place == "runtime.py" or all(each.startswith(f"'backends.{name}") for each in called), file
