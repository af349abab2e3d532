"""tests/gpu/check.py, for when a GPU is at hand: its steps are there, and none is done twice."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "gpu/check.py"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_step_has_a_function() -> None:
    check = script()
    named = {step.partition(":")[0] for step in check.steps()}
    assert {"about", "agree", "pack", "cold", "time", "same", "tune", *check.OF_SEVERAL} == named
    for name in named - {"time"}:
        assert callable(getattr(check, name))


def test_the_step_that_is_called_like_a_module_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    check = script()
    monkeypatch.setattr(check, "timed", lambda *given: {"given": given})
    assert check.played("time:encoder:aoti") == {"given": ("encoder", "aoti")}


def test_it_has_the_entrypoints_of_its_project() -> None:
    table = tomllib.loads((TESTS / "gpu/project/pyproject.toml").read_text())["tool"]["hatch"]["build"]
    declared = {each["target"].rpartition(":")[2] for each in table["hooks"]["precompile"]["entrypoints"]}
    assert declared == {target for target, _, _ in script().ENTRYPOINTS.values()}


def test_what_was_done_is_not_done_again_and_what_fails_is_kept(tmp_path: Path) -> None:
    wheel, results = tmp_path / "empty.whl", tmp_path / "results.json"
    with zipfile.ZipFile(wheel, "w"):
        pass
    first, second, *others = script().steps()
    results.write_text(json.dumps({step: {"done": True} for step in [first, *others]}))
    command = [sys.executable, str(SCRIPT), str(wheel), "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(results.read_text())
    assert found[first] == {"done": True}
    assert "No module named 'gauge'" in found[second]["failed"]
    assert len(done.stdout.splitlines()) == 1


def test_no_step_finds_what_another_one_compiled(tmp_path: Path) -> None:
    wheel, results = tmp_path / "says.whl", tmp_path / "results.json"
    with zipfile.ZipFile(wheel, "w") as archive:
        says = "import os, sys; sys.exit('its cache: ' + os.environ['TORCHINDUCTOR_CACHE_DIR'])"
        archive.writestr("gauge/__init__.py", says)
    steps = ["about", "imports"]
    command = [sys.executable, str(SCRIPT), str(wheel), "--results", str(results), "--only", *steps]
    subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(results.read_text())
    caches = [found[step]["failed"] for step in steps]
    assert all(each.startswith("its cache: /") for each in caches) and caches[0] != caches[1]


def report(results: dict[str, Any]) -> str:
    spec = importlib.util.spec_from_file_location("gpu_report", TESTS.parent / "benchmarks/gpu.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return "\n".join(module.page(results))


def test_its_results_are_told_beside_the_goals() -> None:
    found = report(
        {
            "about": {"card": "a card", "stand-in": False},
            "agree:encoder": {"served": True, "agrees": True},
            "sizes": {"2": {"served": True, "agrees": False}},
            "time:encoder": {
                "ours": {"call": 100.0, "host": 20.0},
                "eager": {"call": 200.0, "host": 90.0},
                "compile": {"call": 90.0, "host": 40.0},
            },
            "cold:encoder:ours": {"seconds": 0.1},
            "cold:encoder:compile": {"seconds": 5.0},
        }
    )
    assert "| encoder | call | compile | 1.11 | 1.05 | missed |" in found
    assert "| encoder | host | compile | 0.50 | 1.0 | met |" in found
    assert "| encoder | first answer | compile | 0.02 | 0.1 | met |" in found
    assert found.endswith("6 steps done, 1 of them with something wrong: sizes")
    assert "stand-in" not in found


def test_what_a_stand_in_said_is_no_result() -> None:
    left_out = {"left out": "nothing is computed on a stand-in"}
    found = report({"about": {"card": "a card", "stand-in": True}, "time:encoder": left_out})
    assert found.startswith("Without a GPU: on a stand-in, which computes nothing. No time was measured.")
    assert "|" not in found
