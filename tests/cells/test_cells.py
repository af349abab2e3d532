"""Results of the suite in each cell, and the page that is made from them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hatch_precompile.runtime import runtime
from hatch_precompile.torch_versions import KNOWN_TORCH
from tests.cells.page import CELLS, PAGE, Cell, Result, page_of, read_results
from tests.cells.run import counted, needs_of, requirements
from tests.conftest import REPOSITORY

PASSING = """
def test_passes(): pass
"""
MIXED = """
import pytest
def test_passes(): pass
def test_fails(): assert 0
@pytest.fixture
def broken(): raise ValueError
def test_errs(broken): pass
@pytest.mark.skip(reason="no browser")
def test_skipped(): pass
@pytest.mark.skip(reason="no browser")
def test_skipped_too(): pass
@pytest.mark.xfail(reason="some day")
def test_expected(): assert 0
"""


def test_the_page_has_the_results() -> None:
    assert PAGE.read_text("utf-8") == page_of(read_results()), "python tests/cells/run.py --page --needs ''"


def test_cells_are_of_versions_that_a_build_knows() -> None:
    known = runtime("calling.prologue").KNOWN
    assert {tuple(map(int, cell.python.split("."))) for cell in CELLS} == set(known)
    assert {cell.torch.rpartition(".")[0] for cell in CELLS} <= set(KNOWN_TORCH)
    assert set(read_results()) <= {cell.name for cell in CELLS}


def test_a_row_says_what_a_run_said() -> None:
    result = Result("3.11+2.13.0", "0123456789", "2026-01-02", 4000, 1, {"no browser": 3, "no AMX": 7}, 2)
    page = page_of({result.cell: result})
    assert "| 3.11 | 2.13.0 | 2026-01-02 | 0123456789 | 4000 | 1 | 10 | 2 |" in page
    assert "\n- no AMX\n- no browser\n" in page
    assert page.count("not run whole yet") == len(CELLS) - 1


@pytest.mark.parametrize(
    ("text", "outcomes", "reasons"),
    [
        (PASSING, {"passed": 1}, {}),
        (MIXED, {"passed": 1, "failed": 2, "skipped": 2, "expected to fail": 1}, {"no browser": 2}),
    ],
)
def test_what_pytest_reports_is_counted(
    text: str, outcomes: dict[str, int], reasons: dict[str, int], tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--junitxml={report}", "test_it.py"], cwd=tmp_path, capture_output=True, check=False
    )
    assert counted(report) == (outcomes, reasons)


def test_a_cell_has_its_torch() -> None:
    needs = ["torch==2.13.0", "torchao==0.18.0", "pytest"]
    assert needs_of(Cell("3.12", "2.15.0"), needs) == ["torch==2.15.0", "torchao==0.18.0", "pytest"]


def test_what_make_asks_for_can_be_installed() -> None:
    """As the shell and then the runner take it apart."""
    done = subprocess.run(["make", "-n", "cells"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    (command,) = (line for line in done.stdout.splitlines() if "--needs" in line)
    arguments = shlex.split(command)
    needs = requirements(arguments[arguments.index("--needs") + 1])
    assert {"torch", "pytest", "setuptools"} <= {Requirement(each).name for each in needs}
