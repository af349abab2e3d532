"""Verification runs what the wheel holds, with the project's sources out of its reach."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hatch_precompile.build import build_bundle
from hatch_precompile.config import load
from hatch_precompile.errors import BuildError
from hatch_precompile.verify.hidden_sources import hide_sources
from hatch_precompile.wheel.layout import digests, lay_out, require_same
from tests.conftest import preload
from tests.support.headers import compiled_headers

MODEL = """
import torch
from acme.late import factor

def scaled(x):
    return x * factor()
"""
LATE = """
def factor():
    from acme.extra import FACTOR
    return FACTOR
"""
SAMPLES = """
import torch

def samples():
    yield (torch.ones(3),), {}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    files = {
        "acme/__init__.py": "",
        "acme/model.py": MODEL,
        "acme/late.py": LATE,
        "acme/extra.py": "FACTOR = 2.0\n",
        "tests/samples.py": SAMPLES,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def build(project: Path, work: Path, left_out: str = "") -> Any:
    entrypoint = {"target": "acme.model:scaled", "samples": "tests.samples:samples"}
    config = load({"entrypoints": [entrypoint]}, default_package="acme")
    files = {path.relative_to(project).as_posix(): path for path in (project / "acme").glob("*.py")}
    work.mkdir()
    preload()
    return build_bundle(
        config,
        source_roots=[project],
        files={path: file for path, file in files.items() if path != left_out},
        work=work,
        report=print,
        root=project,
        headers=compiled_headers(),
    )


def test_a_module_that_the_wheel_has_not_is_missed(project: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build(project, tmp_path / "work", left_out="acme/extra.py")
    assert "No module named 'acme.extra'" in str(caught.value)
    assert "The project has acme/extra.py, and the wheel has not" in str(caught.value)


def test_samples_may_be_beside_the_wheel(project: Path, tmp_path: Path) -> None:
    built = build(project, tmp_path / "work")
    assert sorted(built.compiled) == [f"acme/{name}.py" for name in ("__init__", "extra", "late", "model")]


class TestOutOfReach:
    def test_an_editable_install_of_the_project(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By its folder on sys.path, or by what setuptools and hatchling make of one that is renamed."""
        neighbour, site = tmp_path / "neighbour", project / ".venv/site-packages"
        module = ModuleType("__editable___acme_finder")
        module.MAPPING = {"acme": str(project / "acme")}  # type: ignore[attr-defined]
        of_setuptools = type("_EditableFinder", (), {"__module__": module.__name__})
        of_hatch = type("RedirectingFinder", (), {"_redirections": {"acme": str(project / "acme/model.py")}})
        of_neighbour = type(
            "RedirectingFinder", (), {"_redirections": {"other": str(neighbour / "other.py")}}
        )
        monkeypatch.setitem(sys.modules, module.__name__, module)
        path, finders = list(sys.path), list(sys.meta_path)
        monkeypatch.setattr(sys, "path", [*path, str(project), str(neighbour), str(site)])
        monkeypatch.setattr(sys, "meta_path", [*finders, of_setuptools, of_hatch, of_neighbour])
        hide_sources([str(project), str(project / "src")])
        assert sys.path == [*path, str(neighbour), str(site)]
        assert sys.meta_path == [*finders, of_neighbour]


def test_a_wheel_is_compared_whole(project: Path, tmp_path: Path) -> None:
    import zipfile

    files = {f"acme/{name}.py": project / f"acme/{name}.py" for name in ("__init__", "model")}
    lay_out(files, "acme", tmp_path / "site")
    compiled = digests(files, tmp_path / "site")
    wheel = tmp_path / "acme-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in files:
            archive.write(tmp_path / "site" / path, path)
        for path in (
            "acme/_precompiled/__init__.py",
            "acme-1.dist-info/METADATA",
            "acme-1.data/scripts/acme",
        ):
            archive.writestr(path, "")
    require_same(wheel, compiled, "Do it earlier")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("data.bin", "")
    more = {**compiled, "acme/gone.py": "", "acme/model.py": "another"}
    with pytest.raises(BuildError) as caught:
        require_same(wheel, more, "Do it earlier")
    said = "acme/model.py are another, data.bin were not there, acme/gone.py are no more"
    assert str(caught.value).endswith(f"of its files {said}. Do it earlier")
