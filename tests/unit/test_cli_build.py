"""`hatch-precompile build`, around a backend that stands for the hook: it says what the hook would say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hatch_precompile.cli import main

BACKEND = Path(__file__).parent / "building" / "backend.py"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[tool.hatch.build.hooks.precompile]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(BACKEND, tmp_path)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path


def build(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["build", "--no-isolation", *map(str, arguments)], env={"COLUMNS": "150"})


def test_the_summary_is_made_of_the_wheel_and_of_what_the_hook_said(project: Path) -> None:
    result = build(project)
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    assert ["tint", "2", "2", "1", "1.5 kB", "3.5 s", "1.5 s", "2.0e-07"] in rows
    assert "WARNING: entrypoint other is left out\n" in result.stdout
    assert (project / "dist" / "kiosk-1.0-py3-none-any.whl").is_file()


def test_json_is_the_summary_alone_and_the_lines_go_to_stderr(project: Path) -> None:
    result = build(project, "--json", "--outdir", project / "elsewhere")
    summary = json.loads(result.stdout)
    assert summary["wheel"] == str(project / "elsewhere" / "kiosk-1.0-py3-none-any.whl")
    assert summary["bytes"] == Path(summary["wheel"]).stat().st_size
    assert summary["left_out"] == ["WARNING: entrypoint other is left out"]
    assert summary["entrypoints"] == [
        {
            "package": "kiosk",
            "name": "tint",
            "target": "kiosk:tint",
            "samples": 2,
            "entries": 2,
            "graphs": 1,
            "library_bytes": 1500,
            "capture_seconds": 3.5,
            "verify_seconds": 1.5,
            "largest_difference": 2e-7,
        }
    ]
    assert "tint: sample 1\n" in result.stderr


def test_the_report_is_put_beside_the_wheel_and_named(project: Path) -> None:
    assert json.loads(build(project, "--json").stdout)["report"] is None
    assert "the report of" not in build(project).stdout
    (project / "report").touch()
    report = project / "dist" / "kiosk-1.0-py3-none-any.report.html"
    assert f"the report of the build is {report}\n" in build(project).stdout
    assert report.read_text() == "<p>what was compiled</p>"
    assert json.loads(build(project, "--json").stdout)["report"] == str(report)


def test_a_report_of_an_earlier_build_is_not_named(project: Path) -> None:
    (project / "report").touch()
    build(project)
    (project / "report").unlink()
    assert json.loads(build(project, "--json").stdout)["report"] is None


def test_on_a_terminal_there_is_a_line_for_each_entrypoint_instead(project: Path) -> None:
    result = CliRunner().invoke(
        main, ["build", "--no-isolation", str(project)], env={"FORCE_COLOR": "1", "COLUMNS": "100"}
    )
    assert result.exit_code == 0, result.output
    assert "tint   verified  0:01" in result.stderr
    assert "other  left out" in result.stderr
    assert "1 of 2 captured, 1 of 2 verified, 0:0" in result.stderr
    assert "tint: sample 1\n" not in result.stderr


class TestErrors:
    def test_the_hooks_sentence_is_all_that_is_said(self, project: Path) -> None:
        (project / "fail").touch()
        result = build(project)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (
            1,
            "Error: entrypoint tint: no such word",
        )

    def test_without_one_the_end_of_the_log_is_shown(self, project: Path) -> None:
        (project / "crash").touch()
        result = build(project)
        assert result.exit_code == 1
        assert "Error: the build stopped:\n" in result.stderr
        assert "LookupError: a bug" in result.stderr.partition("Error: the build stopped:")[2]

    def test_a_wheel_without_a_bundle(self, project: Path) -> None:
        (project / "plain").touch()
        result = build(project)
        assert result.exit_code == 1
        assert "holds no bundle" in result.stderr

    def test_a_folder_that_is_no_project(self, tmp_path: Path) -> None:
        result = build(tmp_path)
        assert result.exit_code == 2
        assert f"there is no project in {tmp_path}: it has no pyproject.toml" in result.stderr

    def test_a_pyproject_that_is_not_toml(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("[project")
        result = build(project)
        assert result.exit_code == 2
        assert f"{project}/pyproject.toml is not valid TOML: " in result.stderr

    def test_a_project_without_the_table(self, project: Path) -> None:
        (project / "pyproject.toml").write_text(PYPROJECT.partition("[tool")[0])
        result = build(project)
        assert result.exit_code == 2
        assert "configures no entrypoints; `hatch-precompile init` proposes some" in result.stderr


@pytest.mark.parametrize(
    ("backend", "table", "says"),
    [
        (
            "setuptools.build_meta",
            "tool.hatch.build.hooks.precompile",
            "tool.hatch.build.hooks.precompile: setuptools does not read this table; "
            "call it tool.hatch-precompile",
        ),
        (
            "hatchling.build",
            "tool.hatch-precompile",
            "tool.hatch-precompile: hatchling does not read this table; "
            "call it tool.hatch.build.hooks.precompile",
        ),
        (
            "poetry.core.masonry.api",
            "tool.hatch-precompile",
            "build-system.build-backend: poetry.core.masonry.api runs no hook of hatch-precompile; "
            "hatchling.build and setuptools.build_meta do",
        ),
        (
            "hatchling.build",
            "[tool.hatch.build.hook.precompile.entrypoints]",
            "tool.hatch.build.hook.precompile: nobody reads a table of this name; "
            "call it tool.hatch.build.hooks.precompile",
        ),
    ],
)
def test_a_table_that_nobody_reads(tmp_path: Path, backend: str, table: str, says: str) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "{backend}"\n[{table}]\n'
    )
    result = build(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {says}\n" in result.stderr
