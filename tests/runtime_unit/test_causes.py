"""What is advised where a file of the package cannot be used."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.runtime import runtime
from tests.conftest import REPOSITORY

causes = runtime("causes")


LATER = time.time() + 10**9
"""When the process imported the package: every file was there before."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.so"
    path.touch()
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
    assert causes.advice_on(str(file), LATER, OSError(number, "no")).startswith(advice)


def test_a_library_with_other_contents_may_have_met_a_tool(file: Path) -> None:
    assert "strip or patchelf" in causes.advice_on(str(file), LATER)
    assert causes.advice_on(str(file.with_suffix(".entry")), LATER) == "reinstall the package"


def test_what_changed_after_the_import_needs_a_restart(file: Path) -> None:
    before = file.stat().st_ctime - 1
    assert causes.advice_on(str(file), before).endswith("restart the process")
    gone = file.parent / "gone" / "away"
    assert causes.advice_on(str(gone), before, FileNotFoundError(errno.ENOENT, "no")).endswith(
        "restart the process"
    )


def test_in_an_archive(file: Path) -> None:
    path = f"{file}/model/_precompiled/bundle/manifest.json"
    assert str(file) in causes.advice_on(path, LATER, NotADirectoryError(errno.ENOTDIR, "no"))


def test_in_a_frozen_program_data_files_are_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(causes, "__name__", "model.parts._precompiled.causes")
    missing = str(file.with_name("manifest.json"))
    advice = causes.advice_on(missing, LATER, FileNotFoundError(errno.ENOENT, "no"))
    assert advice.endswith("all files of the folder model/parts/_precompiled, its libraries too")


OPTIMIZED = """
import sys
from hatch_precompile.runtime import runtime
sys.path.insert(0, sys.argv[1])
import asserts
references, manifest = runtime("values.references"), runtime("loading.manifest")
try:
    manifest.check_python({"built_with": {"magic": manifest.importlib.util.MAGIC_NUMBER.hex()}})
    references.check("asserts", [["a", sys.argv[2]]], sys.argv[3])
    print("fits")
except (manifest.Unfit, references.Stale) as error:
    print(error, getattr(error, "advice", ""), sep="; ")
"""

CHANGED = "asserts.careful has changed since the build; rebuild the wheel"


@pytest.mark.parametrize(
    ("flag", "function", "said"),
    [
        ("-O", "careful", f"{CHANGED}, or run Python without -O"),
        ("-O", "plain", "fits"),
        ("-B", "careful", "fits"),
        (
            "-OO",
            "plain",
            "Python takes docstrings out of code here (-OO, PYTHONOPTIMIZE=2)",
        ),
    ],
)
def test_under_optimized_python_the_advice_is_to_run_it_without(
    flag: str, function: str, said: str, tmp_path: Path
) -> None:
    text = "def careful(x):\n    assert x\n    return x\n\ndef plain(x):\n    return x\n"
    (tmp_path / "asserts.py").write_text(text)
    names: dict[str, Any] = {"__name__": "asserts"}
    exec(compile(text, str(tmp_path / "asserts.py"), "exec", dont_inherit=True), names)
    built = runtime("values.references").fingerprint(names[function])
    command = [sys.executable, flag, "-c", OPTIMIZED, str(tmp_path), function, built]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.startswith(said)
