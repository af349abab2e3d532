"""What is advised where a file of the package cannot be used."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from hatch_precompile.runtime import runtime

causes = runtime("causes")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was there before the process imported the package."""
    path = tmp_path / "graph.so"
    path.touch()
    monkeypatch.setattr(causes, "IMPORTED", path.stat().st_ctime + 60)
    return path


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "raise the limit"),
        (errno.ENOMEM, "raise the limit"),
        (errno.EACCES, "let this process read it"),
        (errno.EIO, "reinstall the package"),
    ],
)
def test_by_the_number_of_the_error(file: Path, number: int, advice: str) -> None:
    assert causes.advice_on(str(file), OSError(number, "no")).startswith(advice)


def test_a_library_with_other_contents_may_have_met_a_tool(file: Path) -> None:
    assert "strip or patchelf" in causes.advice_on(str(file))
    assert causes.advice_on(str(file.with_suffix(".entry"))) == "reinstall the package"


def test_what_changed_after_the_import_needs_a_restart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "IMPORTED", file.stat().st_ctime - 1)
    assert causes.advice_on(str(file)).endswith("restart the process")
    gone = file.parent / "gone" / "away"
    assert causes.advice_on(str(gone), FileNotFoundError(errno.ENOENT, "no")).endswith("restart the process")


def test_in_an_archive(file: Path) -> None:
    path = f"{file}/model/_precompiled/bundle/manifest.json"
    assert str(file) in causes.advice_on(path, NotADirectoryError(errno.ENOTDIR, "no"))


def test_in_a_frozen_program_data_files_are_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(causes, "__name__", "model.parts._precompiled.causes")
    missing = str(file.with_name("manifest.json"))
    advice = causes.advice_on(missing, FileNotFoundError(errno.ENOENT, "no"))
    assert advice.endswith("all files of the folder model/parts/_precompiled, its libraries too")
