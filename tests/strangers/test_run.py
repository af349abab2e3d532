"""The table of `make strangers`, and how its runner judges; the builds are `make strangers` itself."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
import torch

from tests.strangers import run

CASES = run.read_cases()
MODULES = {file.stem: file for file in (Path(run.HERE) / "cases").glob("*.py")}


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_each_case_is_a_module_and_each_module_a_case() -> None:
    assert set(CASES) == set(MODULES)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_case_names_what_it_needs_pinned(case: run.Case) -> None:
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", need) for need in case.needs)
    foreign = _imported(MODULES[case.name]) - set(sys.stdlib_module_names) - {"torch", "einops"}
    assert foreign <= set(case.modules)
    assert bool(case.needs) == bool(case.modules)


def test_a_project_has_the_keys_of_the_table(tmp_path: Path) -> None:
    case = CASES["sizes_of_images"]
    run.write_project(case, tmp_path)
    hook = run.tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]
    (written,) = hook["precompile"]["entrypoints"]
    assert written == case.entrypoints[0].table
    assert "calls" not in written and "outcome" not in written
    assert (tmp_path / "src/sizes_of_images/__init__.py").read_text() == MODULES[case.name].read_text()


SAID = """\
some: sample 1/1: hit
WARNING: entrypoint one is left out of the wheel: entrypoint one: sample 1/1: torch.compile failed: Bad:
  at a.py:1 in f
some: verify: sample 1/1: hit
WARNING: entrypoint two is left out of the wheel: entrypoint two: no sample
"""


def test_what_the_build_says_of_an_entrypoint() -> None:
    assert run.refusal(SAID, "one") == "sample 1/1: torch.compile failed: Bad:\n  at a.py:1 in f"
    assert run.refusal(SAID, "two") == "no sample"
    assert run.refusal(SAID, "some") == run.refusal(SAID, "tw") == ""


@pytest.mark.parametrize(
    ("expected", "found", "fine"),
    [
        ("served", "served", True),
        ("served", "no sample", False),
        ("no sample", "no sample of it", True),
        ("no sample", "served", False),
    ],
)
def test_an_outcome_is_the_expected_one(expected: str, found: str, fine: bool) -> None:
    assert run.Result("a:b", expected, found).fine is fine


@pytest.mark.parametrize(
    ("hits", "misses", "answer", "found"),
    [
        (2, 0, 1.0, "served"),
        (1, 0, 1.0, "1 hits and 0 misses in 2 calls"),
        (2, 1, 1.0, "2 hits and 1 misses in 2 calls"),
        (2, 0, 1.5, "another answer than eager code's: "),
    ],
)
def test_calls_are_judged(hits: int, misses: int, answer: float, found: str) -> None:
    result = run.Result("a:b", run.SERVED, run.SERVED)
    counted = {"hits": hits, "misses": misses, "calls": 2}
    run.judge(result, counted, [torch.tensor([answer])], [torch.tensor([1.0])])
    assert result.found.startswith(found)


def test_the_largest_difference_is_of_numbers_in_the_same_place() -> None:
    nan = float("nan")
    assert run.largest([torch.tensor([1.0, nan, 4.0])], [torch.tensor([1.5, nan, 4.0])]) == 0.5
    assert run.largest([torch.tensor([])], [torch.tensor([])]) == 0.0
