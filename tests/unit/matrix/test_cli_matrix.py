"""`hatch-precompile plan`, `build --cell` and `build --matrix`, around a backend that stands for the hook."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hatch_precompile.bundle.reader import find_cells
from hatch_precompile.cli import main
from tests.unit.matrix.conftest import CELLS, PYPROJECT
from tests.unit.test_processes import eventually, processes_with

REPOSITORY = Path(__file__).parents[3]


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "150", **environment})


def summary(*arguments: object) -> dict[str, Any]:
    result = run("build", "--matrix", "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class TestPlan:
    def test_it_is_one_line_for_a_ci_system(self, project: Path) -> None:
        result = run("plan", project)
        assert result.exit_code == 0, result.output
        assert result.stdout.count("\n") == 1
        include = json.loads(result.stdout)["include"]
        assert [cell["name"] for cell in include] == CELLS
        assert include[2] == {
            "name": "cp312-torch2.13.0",
            "python": "3.12",
            "torch": "2.13.0",
            "variants": ["native"],
            "entrypoints": ["tint"],
        }

    def test_it_builds_nothing(self, project: Path, machine: Path) -> None:
        assert run("plan", project).exit_code == 0
        assert not (machine / "uv.log").exists()

    def refused(self, project: Path, old: str, new: str) -> str:
        text = PYPROJECT.replace(old, new)
        assert text != PYPROJECT
        (project / "pyproject.toml").write_text(text)
        result = run("plan", project)
        assert result.exit_code == 2
        return result.stderr

    def test_without_a_matrix(self, project: Path) -> None:
        line = next(line for line in PYPROJECT.splitlines() if line.startswith("matrix"))
        said = self.refused(project, line, "")
        assert "tool.hatch.build.hooks.precompile.matrix: expected a table such as { python" in said

    def test_a_wrong_key(self, project: Path) -> None:
        said = self.refused(project, '"3.11"', '"3.9"')
        assert "precompile.matrix.python[0]: expected a minor version of Python, 3.11 or later" in said

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('"3.12"', '"3.99"', "matrix.python: Python 3.99 is not known to this hatch-precompile"),
            ('"2.14.1"', '"2.1.0"', "matrix.torch: torch 2.1.0 is older than"),
            ('"2.14.1"', '"2.99.0"', "matrix.torch: torch 2.99.0 is newer than"),
        ],
    )
    def test_versions_that_no_build_knows(self, project: Path, old: str, new: str, said: str) -> None:
        """Not only when an environment of some GB has been made for them."""
        assert f"tool.hatch.build.hooks.precompile.{said}" in self.refused(project, old, new)

    def test_requirements_that_exclude_a_torch(self, project: Path) -> None:
        said = self.refused(project, "requires = []", 'requires = ["torch==2.13.0"]')
        assert "build-system.requires: torch==2.13.0 excludes torch 2.14.1 of the matrix" in said

    def test_requirements_that_exclude_it_for_another_python(self, project: Path) -> None:
        marked = """requires = ["torch>=2.14 ; python_version >= '3.13'", "torch>=2.13"]"""
        (project / "pyproject.toml").write_text(PYPROJECT.replace("requires = []", marked))
        assert run("plan", project).exit_code == 0

    def test_a_table_in_hatch_toml_holds(self, project: Path) -> None:
        table = PYPROJECT.partition("[tool.hatch.")[2].replace("tool.hatch.", "").replace('"3.12"', '"3.13"')
        (project / "hatch.toml").write_text(f"[{table}")
        include = json.loads(run("plan", project).stdout)["include"]
        assert {cell["python"] for cell in include} == {"3.11", "3.13"}


THREE = (
    PYPROJECT
    + """
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "kiosk:shade"
samples = "kiosk:samples"
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "kiosk:tone"
samples = "kiosk:samples"
"""
)


class TestShards:
    @pytest.fixture
    def three(self, project: Path) -> Path:
        (project / "pyproject.toml").write_text(THREE)
        return project

    def test_a_plan_has_each(self, three: Path) -> None:
        include = json.loads(run("plan", "--shards", 2, three).stdout)["include"]
        assert len(include) == 2 * len(CELLS)
        assert [(each["name"], each["entrypoints"]) for each in include[:2]] == [
            ("cp311-torch2.13.0-1of2", ["tint", "tone"]),
            ("cp311-torch2.13.0-2of2", ["shade"]),
        ]

    def test_there_are_no_more_than_entrypoints(self, project: Path) -> None:
        assert run("plan", "--shards", 9, project).stdout == run("plan", project).stdout
        result = run("build", "--cell", f"{CELLS[0]}-1of2", project)
        assert result.exit_code == 2
        assert "there cannot be 2 shards of 1 entrypoints" in result.stderr

    def test_one_is_built_alone(self, three: Path) -> None:
        result = run("build", "--cell", f"{CELLS[0]}-2of2", "--json", three)
        assert result.exit_code == 0, result.output
        assert [each["name"] for each in json.loads(result.stdout)["entrypoints"]] == ["shade"]

    def test_a_matrix_of_them_is_whole(self, three: Path, tmp_path: Path) -> None:
        whole = summary("--outdir", tmp_path / "whole", three)
        split = summary("--outdir", tmp_path / "split", "--shards", 2, "--jobs", 2, three)
        assert Path(whole["wheel"]).name == Path(split["wheel"]).name
        cells, others = find_cells(whole["wheel"]), find_cells(split["wheel"])
        assert [each.cell for each in cells] == [each.cell for each in others] == CELLS
        for one, other in zip(cells, others, strict=True):
            assert other.manifest.files == one.manifest.files
            names = [each.name for each in other.manifest.entrypoints]
            assert names == ["tint", "shade", "tone"]
        assert [[each["name"] for each in cell["entrypoints"]] for cell in split["cells"][:2]] == [
            ["tint", "tone"],
            ["shade"],
        ]


class TestCell:
    def test_it_is_built_with_its_python_and_its_torch(self, project: Path, machine: Path) -> None:
        result = run("build", "--cell", "cp312-torch2.14.1", "--json", project)
        assert result.exit_code == 0, result.output
        wheel = Path(json.loads(result.stdout)["wheel"])
        assert wheel == project / "dist" / "kiosk-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
        assert [each.cell for each in find_cells(str(wheel))] == ["cp312-torch2.14.1"]
        assert json.loads(result.stdout)["entrypoints"][0]["capture_seconds"] == 2.0
        assert "this is cp312-torch2.14.1\n" in result.stderr
        assert "venv --no-project --python" in (machine / "uv.log").read_text()

    def test_it_has_the_bytes_that_it_has_in_the_matrix(self, project: Path) -> None:
        assert run("build", "--cell", CELLS[0], project, "--outdir", project / "a").exit_code == 0
        (project / f"fail-{CELLS[3]}").touch()
        assert run("build", "--matrix", project).exit_code == 1
        (alone,) = (project / "a").glob("*.whl")
        (project / f"fail-{CELLS[3]}").unlink()
        within = project / "dist" / "cells" / CELLS[0] / alone.name
        assert within.read_bytes() == alone.read_bytes()

    def test_a_report_is_put_beside_it(self, project: Path) -> None:
        (project / "report").touch()
        result = run("build", "--cell", CELLS[0], "--json", project)
        assert Path(json.loads(result.stdout)["report"]).read_text() == f"<p>{CELLS[0]}</p>"

    def test_one_that_is_not_of_the_matrix(self, project: Path) -> None:
        result = run("build", "--cell", "cp313-torch2.13.0", project)
        assert result.exit_code == 2
        assert f"the matrix has no cell cp313-torch2.13.0; it has {', '.join(CELLS)}" in result.stderr

    def test_a_python_that_is_not_to_be_had(self, project: Path, machine: Path) -> None:
        (machine / "without").write_text("3.12")
        result = run("build", "--cell", "cp312-torch2.13.0", project)
        assert result.exit_code == 1
        assert "Error: Python 3.12 is not to be had:\nerror: No interpreter found" in result.stderr

    def test_a_torch_that_is_not_to_be_had(self, project: Path) -> None:
        text = PYPROJECT.replace('"2.14.1"', '"2.15.99"').replace('"backend"', '"no_backend"')
        (project / "pyproject.toml").write_text(text)
        shutil.copy(project / "backend.py", project / "no_backend.py")
        with (project / "no_backend.py").open("a") as file:
            file.write(
                "\ndef get_requires_for_build_wheel(_=None): raise SystemExit('resolution impossible')\n"
            )
        result = run("build", "--cell", "cp311-torch2.15.99", project)
        assert result.exit_code == 1
        assert (
            "Error: torch 2.15.99 for Python 3.11 is not to be had here: "
            "error: there is no version of torch==2.15.99\n" in result.stderr
        )

    def test_a_wheel_for_something_else_is_not_taken(self, project: Path) -> None:
        (project / "another-torch").touch()
        result = run("build", "--cell", CELLS[0], project)
        assert result.exit_code == 1
        assert "is for cp311-torch2.12.0, but cp311-torch2.13.0 was asked for" in result.stderr
        assert not (project / "dist").exists()


class TestMatrix:
    def test_one_wheel_has_all_cells(self, project: Path, machine: Path) -> None:
        found = summary(project)
        wheel = Path(found["wheel"])
        assert [each.cell for each in find_cells(str(wheel))] == CELLS
        assert [cell["name"] for cell in found["cells"]] == CELLS
        assert {cell["state"] for cell in found["cells"]} == {"built"}
        assert [cell["entrypoints"][0]["capture_seconds"] for cell in found["cells"]] == [2.0] * 4
        assert list((project / "dist").iterdir()) == [wheel]

    def test_several_at_a_time_or_elsewhere_give_the_same_bytes(self, project: Path) -> None:
        one = Path(summary(project)["wheel"]).read_bytes()
        (project / "machines.py").write_text(
            "from concurrent.futures import ProcessPoolExecutor\n"
            "from multiprocessing import get_context\n"
            "def two(): return ProcessPoolExecutor(2, mp_context=get_context('spawn'))\n"
        )
        (project / "machines.py").rename(project.parent / "machines.py")
        assert Path(summary(project, "--jobs", 3)["wheel"]).read_bytes() == one
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project.parent)
            found = summary(project, "--executor", "machines:two")
        assert Path(found["wheel"]).read_bytes() == one
        assert found["cells"][0]["entrypoints"][0]["capture_seconds"] == 2.0

    def test_reports_of_all_cells_are_put_beside_it(self, project: Path) -> None:
        (project / "report").touch()
        found = summary(project)
        stem = Path(found["wheel"]).stem
        assert [Path(page).name for page in found["reports"]] == [
            f"{stem}.{cell}.report.html" for cell in CELLS
        ]
        assert [Path(page).read_text() for page in found["reports"]] == [f"<p>{cell}</p>" for cell in CELLS]

    def test_one_page_is_about_all_cells(self, project: Path) -> None:
        (project / "report").touch()
        found = summary(project)
        wheel, page = Path(found["wheel"]), Path(found["report"])
        assert page == wheel.with_suffix(".report.html")
        text = page.read_text()
        links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', text)
        assert [name for _, name in links] == CELLS
        assert [(page.parent / file).read_text() for file, _ in links] == [f"<p>{cell}</p>" for cell in CELLS]
        assert text.count(">tint</td>") == len(CELLS) and text.count(">2.0 s<") == len(CELLS)
        assert "url(" not in text and "<script" not in text

    def test_without_reports_there_is_none(self, project: Path) -> None:
        found = summary(project)
        assert found["report"] is None and found["reports"] == []

    def test_people_get_a_table_for_each_cell(self, project: Path) -> None:
        result = run("build", "--matrix", project)
        assert result.exit_code == 0, result.output
        assert [
            line.partition(",")[0] for line in result.stdout.splitlines() if line.startswith("cp31")
        ] == CELLS
        assert f"{CELLS[1]}: this is {CELLS[1]}\n" in result.stderr
        assert f"{CELLS[1]}: building\n" in result.stderr
        assert f"{CELLS[1]}: built\n" in result.stderr

    def test_on_a_terminal_there_is_a_line_for_each_cell_instead(self, project: Path) -> None:
        result = run("build", "--matrix", project, FORCE_COLOR="1", COLUMNS="100")
        assert result.exit_code == 0, result.output
        assert re.search(r"4 of 4 cells, \d+:", result.stderr)
        assert re.search(r"Making the source distribution, \d+:", result.stderr)
        assert re.search(r"cp311-torch2\.14\.1  building: \w+", result.stderr)
        assert "this is" not in result.stderr


class TestFailures:
    def fail(self, project: Path) -> Result:
        (project / f"fail-{CELLS[1]}").touch()
        result = run("build", "--matrix", "--json", project)
        assert result.exit_code == 1
        return result

    def test_the_others_are_built_and_kept(self, project: Path) -> None:
        result = self.fail(project)
        kept = project / "dist" / "cells"
        assert (
            f"Error: 1 of 4 cells failed: {CELLS[1]}\nThe wheels of the others are in {kept}; "
            in result.stderr
        )
        assert sorted(wheel.parent.name for wheel in kept.glob("*/*.whl")) == [CELLS[0], *CELLS[2:]]
        cells = json.loads(result.stdout)["cells"]
        assert json.loads(result.stdout)["wheel"] is None
        assert [cell["problem"] for cell in cells] == [None, "entrypoint tint: no such word", None, None]
        assert [len(cell["entrypoints"]) for cell in cells] == [1, 0, 1, 1]

    def test_a_second_run_builds_what_is_missing(self, project: Path, machine: Path) -> None:
        # The failure is of the machine, not of the sources: those are the same.
        (machine / "without").write_text("3.12")
        assert run("build", "--matrix", project).exit_code == 1
        (machine / "without").unlink()
        found = summary("--resume", project)
        assert [cell["state"] for cell in found["cells"]] == ["resumed", "resumed", "built", "built"]
        assert list((project / "dist").iterdir()) == [Path(found["wheel"])]
        assert Path(found["wheel"]).read_bytes() == Path(summary(project)["wheel"]).read_bytes()

    def test_it_goes_on_with_the_same_sources_only(self, project: Path) -> None:
        self.fail(project)
        (project / f"fail-{CELLS[1]}").unlink()
        result = run("build", "--matrix", "--resume", project)
        assert result.exit_code == 1
        assert "were built from other sources, or by another hatch-precompile" in result.stderr
        assert len(list((project / "dist" / "cells").glob("*/*.whl"))) == 3

    def test_with_nothing_to_go_on_with(self, project: Path) -> None:
        result = run("build", "--matrix", "--resume", project)
        assert result.exit_code == 1
        assert f"--resume: there is nothing to go on with in {project / 'dist' / 'cells'}" in result.stderr

    def test_a_folder_of_somebody_elses_is_not_touched(self, project: Path) -> None:
        own = project / "dist" / "cells" / "notes.txt"
        own.parent.mkdir(parents=True)
        own.touch()
        result = run("build", "--matrix", project)
        assert result.exit_code == 1
        assert "but was not made for it; move it away" in result.stderr
        assert own.exists()

    def test_a_source_distribution_that_cannot_be_built(self, project: Path) -> None:
        (project / "backend.py").write_text("def build_sdist(folder, _=None): raise LookupError('a bug')\n")
        result = run("build", "--matrix", project)
        assert result.exit_code == 1
        assert "Error: the source distribution cannot be built:\n" in result.stderr
        assert "LookupError: a bug" in result.stderr.partition("Error:")[2]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--jobs", "2"], "--jobs, --executor, --dask, --shards and --resume are for --matrix"),
            (["--resume", "--cell", CELLS[0]], "--shards and --resume are for --matrix"),
            (["--matrix", "--cell", CELLS[0]], "--cell and --matrix exclude each other"),
            (["--matrix", "--jobs", "2", "--dask", "tcp://x"], "exclude each other"),
            (["--matrix", "--no-isolation"], "not with --no-isolation"),
            (["--matrix", "--executor", "machines"], 'expected a reference like "module:factory"'),
            (["--matrix", "--executor", "no_such:thing"], "no_such:thing cannot be imported"),
            (["--matrix", "--executor", "json:nothing"], "json:nothing cannot be imported"),
        ],
    )
    def test_options_that_do_not_go_together(self, project: Path, arguments: list[str], words: str) -> None:
        result = run("build", *arguments, project)
        assert result.exit_code == 2
        assert words in result.stderr

    def test_a_factory_that_fails(self, project: Path) -> None:
        result = run("build", "--matrix", "--executor", "json:loads", project)
        assert result.exit_code == 1
        assert "Error: --executor: json:loads raised TypeError: " in result.stderr

    def test_a_factory_of_something_else(self, project: Path) -> None:
        result = run("build", "--matrix", "--executor", "builtins:dict", project)
        assert result.exit_code == 1
        assert "expected builtins:dict to return a concurrent.futures.Executor, got dict" in result.stderr


@pytest.mark.parametrize("place", [[], ["--executor", "machines:one"]], ids=["here", "executor"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_ended_leaves_nothing(
    project: Path, machine: Path, number: signal.Signals, place: list[str]
) -> None:
    mark, started = f"mark-of-{project.parent.name}-{os.getpid()}", project.parent / "started"
    (project / f"linger-{CELLS[1]}").write_text(f"{mark} {started}")
    (project.parent / "machines.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\ndef one(): return ProcessPoolExecutor(1)\n"
    )
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from hatch_precompile.cli import main; main(prog_name='hatch-precompile')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "build", "--matrix", *place, project],
        cwd=project.parent,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(machine / "tmp")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: started.exists() or process.poll() is not None, 120)
        assert process.poll() is None
        assert eventually(lambda: len(processes_with(mark)) == 1)
        process.send_signal(number)
        assert process.wait(60) == (1 if number == signal.SIGINT else 128 + number)
    finally:
        process.kill()
    assert eventually(lambda: [*processes_with(mark), *processes_with(str(machine / "tmp"))] == [])
    assert list((machine / "tmp").iterdir()) == []
    # What was built is kept, whole.
    (kept,) = (project / "dist" / "cells").glob("*/*.whl")
    assert zipfile.ZipFile(kept).testzip() is None
