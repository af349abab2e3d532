"""Results of the suite in each cell, and the page that is made from them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hatch_precompile.runtime import runtime
from hatch_precompile.torch_versions import KNOWN_TORCH
from tests.cells import run
from tests.cells.page import CELLS, PAGE, Cell, Result, page_of, read_results
from tests.cells.run import counted, interpreter, needs_of, requirements
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
    assert {cell.torch.rpartition(".")[0] for cell in CELLS} == set(KNOWN_TORCH)
    assert set(read_results()) <= {cell.name for cell in CELLS}


def test_a_row_says_what_a_run_said() -> None:
    result = Result("3.11+2.13.0", "0123456789", "2026-01-02", 4000, 1, {"no browser": 3, "no AMX": 7}, 2)
    other = Result("3.12+2.13.0", "0123456789", "2026-01-02", 4000, 0, {"no AMX": 8, "no Intel": 1}, 2)
    page = page_of({result.cell: result, other.cell: other})
    assert "| 3.11 | 2.13.0 | 2026-01-02 | 0123456789 | 4000 | 1 | 10 | 2 |" in page
    assert page.endswith("""
| skipped because | 3.11 + 2.13.0 | 3.12 + 2.13.0 |
| --- | --- | --- |
| no AMX | 7 | 8 |
| no Intel |  | 1 |
| no browser | 3 |  |
""")
    assert page.count("not run whole yet") == len(CELLS) - 2


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


def python_that_says(version: str, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return str(path)


class TestPythons:
    """Which Python a cell is run with."""

    @pytest.fixture
    def machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder for commands and one of pyenv's, both empty."""
        monkeypatch.setenv("PATH", f"{tmp_path}/bin")
        monkeypatch.setenv("PYENV_ROOT", f"{tmp_path}/pyenv")
        monkeypatch.delenv("PYTHON_3_99", raising=False)
        return tmp_path

    def test_the_one_that_runs_here(self, machine: Path) -> None:
        assert interpreter("{}.{}".format(*sys.version_info)) == sys.executable

    def test_one_that_is_named_before_others(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert interpreter("3.99") is None
        on_the_path = python_that_says("3.99", machine / "bin/python3.99")
        assert interpreter("3.99") == on_the_path
        named = python_that_says("3.99", machine / "named")
        monkeypatch.setenv("PYTHON_3_99", named)
        assert interpreter("3.99") == named

    @pytest.mark.parametrize("says", ["", "3.98"])
    def test_a_command_that_runs_another_or_none(self, machine: Path, says: str) -> None:
        python_that_says(says, machine / "bin/python3.99")
        assert interpreter("3.99") is None
        of_pyenv = python_that_says("3.99", machine / "pyenv/versions/3.99.1/bin/python")
        assert interpreter("3.99") == of_pyenv


class TestTheNewest:
    def here(self, monkeypatch: pytest.MonkeyPatch, *versions: str) -> None:
        monkeypatch.setattr(run, "interpreter", lambda version: version if version in versions else None)

    def test_of_those_whose_python_is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here(monkeypatch, "3.11", "3.12", "3.13")
        assert run.newest_cell() == (Cell("3.13", "2.14.1"), "3.13")
        self.here(monkeypatch, "3.11", "3.14")
        assert run.newest_cell() == (Cell("3.14", "2.15.0"), "3.14")

    def test_that_there_is_none_fails_with_a_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.here(monkeypatch, "3.11")
        assert run.run_part(["torch==2.13.0"], ["tests"], workers=1, keep=False) == 1
        assert capsys.readouterr().out == (
            "there is no Python here for another cell than 3.11+2.13.0; install one, or name it in the "
            "environment, as in PYTHON_3_14=/path/to/python\n"
        )

    def test_that_it_is_not_to_be_had_fails_with_a_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        monkeypatch.setattr(run, "newest_cell", lambda: (Cell("3.13", "2.14.1"), sys.executable))
        monkeypatch.setattr(run, "REPOSITORY", tmp_path)
        monkeypatch.setattr(run, "_installer", lambda python: ["false"])
        assert run.run_part(["torch==2.13.0"], ["tests"], workers=1, keep=False) == 1
        told = capfd.readouterr().out.splitlines()[-1]
        assert re.match(
            r"3\.13\+2\.14\.1: there is no environment for it: false .*torch==2\.14\.1.* failed", told
        )


@pytest.mark.parametrize("setting", ["", "on"])
def test_ci_runs_the_newest_cell_where_it_is_told_to(setting: str, tmp_path: Path) -> None:
    ci = tmp_path / ".ci/run"
    ci.parent.mkdir()
    shutil.copy(REPOSITORY / ".ci/run", ci)
    for name in ("make", "chromium"):
        (tmp_path / name).write_text('#!/bin/sh\n[ "$1" != newest-cell ]\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **({"NEWEST_CELL": setting} if setting else {})}
    done = subprocess.run([ci], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bool(setting)
    assert ("FAILED: make newest-cell\n" in done.stdout) == bool(setting)
    assert "== make test passed" in done.stdout


def test_the_newest_cell_runs_tests_that_there_are() -> None:
    done = subprocess.run(
        ["make", "-n", "newest-cell"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (command,) = (line for line in done.stdout.splitlines() if "--newest" in line)
    arguments = shlex.split(command)
    tests = arguments[arguments.index("--tests") + 1].split()
    assert "tests/torch_internals" in tests
    assert all((REPOSITORY / each).exists() for each in tests)
