"""A project with a matrix, and machines that need neither torch nor a network to build it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "kiosk"
version = "1.0"
[tool.hatch.build.hooks.precompile]
matrix = { python = ["3.11", "3.12"], torch = ["2.13.0", "2.14.1"] }
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "kiosk:tint"
samples = "kiosk:samples"
"""
CELLS = ["cp311-torch2.13.0", "cp311-torch2.14.1", "cp312-torch2.13.0", "cp312-torch2.14.1"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(HERE / "backend.py", folder)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the fake uv is, the first on PATH; what it was asked is in `uv.log` beside it."""
    folder = tmp_path / "machine"
    folder.mkdir()
    shutil.copy(HERE / "fake_uv.py", folder)
    uv = folder / "uv"
    uv.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/fake_uv.py "$@"\n')
    uv.chmod(0o755)
    (folder / "tmp").mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), "/usr/bin", "/bin"]))
    monkeypatch.setenv("PYENV_ROOT", str(folder / "no-pyenv"))
    # Workers that are killed leave their folders behind.
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    return folder
