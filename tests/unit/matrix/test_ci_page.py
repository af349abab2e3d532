"""docs/workflow.yml and docs/ci.md, tried: their commands, on machines that share nothing but artifacts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.bundle.reader import find_cells
from tests.unit.matrix.conftest import CELLS

yaml = pytest.importorskip("yaml")

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "ci.md").read_text("utf-8")


@pytest.fixture
def commands(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uvx`, which would fetch this plugin, and the plugin's own command."""
    run = f'exec {sys.executable} -P -m hatch_precompile "$@"\n'
    (machine / "uvx").write_text(f'#!/bin/sh\n[ "$1 $2" = "--from hatch-precompile[cli]" ] && shift 3\n{run}')
    (machine / "hatch-precompile").write_text(f"#!/bin/sh\n{run}")
    for name in ("uvx", "hatch-precompile"):
        (machine / name).chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def shell(command: str, folder: Path, **environment: str) -> None:
    subprocess.run(["bash", "-e", "-c", command], cwd=folder, env={**os.environ, **environment}, check=True)


def commands_of(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.usefixtures("commands")
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_workflow_makes_one_wheel_for_each_kind_of_machine(project: Path, tmp_path: Path) -> None:
    jobs = yaml.safe_load((REPOSITORY / "docs" / "workflow.yml").read_text("utf-8"))["jobs"]
    assert [jobs[name].get("needs") for name in ("plan", "build", "merge")] == [None, "plan", "build"]

    (command,) = commands_of(jobs["plan"])
    shell(command, project, GITHUB_OUTPUT=str(tmp_path / "output"))
    key, _, value = (tmp_path / "output").read_text().strip().partition("=")
    assert jobs["plan"]["outputs"] == {key: f"${{{{ steps.plan.outputs.{key} }}}}"}
    matrix = jobs["build"]["strategy"]["matrix"]
    assert matrix.pop("cell") == f"${{{{ fromJSON(needs.plan.outputs.{key}) }}}}"
    assert matrix == jobs["merge"]["strategy"]["matrix"] == {"machine": ["ubuntu-24.04", "ubuntu-24.04-arm"]}
    assert jobs["build"]["runs-on"] == "${{ matrix.machine }}"

    (command,) = commands_of(jobs["build"])
    upload = jobs["build"]["steps"][-1]["with"]
    download = jobs["merge"]["steps"][0]["with"]
    merging = tmp_path / "merging"

    def filled(text: str, machine: str, cell: str = "") -> str:
        return text.replace("${{ matrix.machine }}", machine).replace("${{ matrix.cell }}", cell)

    # This machine is one of the kinds; an artifact of the other is not among those that are merged.
    (here, there) = matrix["machine"]
    for cell in json.loads(value):
        checkout = tmp_path / f"checkout-{cell}"
        shutil.copytree(project, checkout)
        shell(filled(command, here, cell), checkout)
        (wheel,) = checkout.glob(upload["path"])
        name = filled(upload["name"], here, cell)
        assert fnmatch(name, filled(download["pattern"], here))
        assert not fnmatch(filled(upload["name"], there, cell), filled(download["pattern"], here))
        assert not fnmatch(name, filled(download["pattern"], there))
        artifact = merging / download["path"] / name
        artifact.mkdir(parents=True)
        shutil.copy(wheel, artifact)

    (command,) = commands_of(jobs["merge"])
    shell(command, merging)
    name = jobs["merge"]["steps"][-1]["with"]["name"]
    assert filled(name, here) != name
    (wheel,) = merging.glob(jobs["merge"]["steps"][-1]["with"]["path"])
    assert [each.cell for each in find_cells(str(wheel))] == CELLS


@pytest.mark.usefixtures("commands")
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_array_builds_each_cell(project: Path) -> None:
    (text,) = blocks("bash", "#SBATCH")
    assert f"--array=0-{len(CELLS) - 1}\n" in text
    shell(text, project, SLURM_ARRAY_TASK_ID="2")
    (wheel,) = project.glob("cells/*/*.whl")
    assert wheel.parent.name == CELLS[2]


CIBUILDWHEEL = """#!/bin/sh
[ "$1 $2 $3" = "--platform linux --output-dir" ] || exit 1
for python in $PYTHONS; do hatch-precompile build --cell "$python-torch$TORCH" --outdir "$4" || exit 1; done
"""


@pytest.mark.usefixtures("commands")
def test_the_runs_of_cibuildwheel_make_one_wheel(project: Path, machine: Path) -> None:
    command = machine / "cibuildwheel"
    command.write_text(CIBUILDWHEEL)
    command.chmod(0o755)
    (text,) = blocks("bash", "cibuildwheel")
    (merge,) = re.findall(r"When all have ended: `(.*)`", PAGE)  # of the array's: the same folders
    assert text.endswith(f"\n{merge}\n")
    shell(text, project, PYTHONS=" ".join(pythons_of_cibuildwheel()))
    (wheel,) = project.glob("dist/*.whl")
    assert [each.cell for each in find_cells(str(wheel))] == CELLS


def test_cibuildwheel_builds_with_the_torch_of_its_run() -> None:
    options = cibuildwheel()
    linux = options["linux"]
    assert linux["before-all"] == f"echo torch==$TORCH > {linux['environment']['PIP_CONSTRAINT']}"
    assert linux["environment-pass"] == ["TORCH"]
    # What is not of a matrix, the example has as well.
    example = tomllib.loads((REPOSITORY / "example_project" / "pyproject.toml").read_text("utf-8"))
    same = ("build-frontend", "manylinux-x86_64-image", "repair-wheel-command")
    assert {key: options[key] for key in same} == {key: example["tool"]["cibuildwheel"][key] for key in same}


def cibuildwheel() -> dict[str, Any]:
    (text,) = blocks("toml", "cibuildwheel")
    options: dict[str, Any] = tomllib.loads(text)["tool"]["cibuildwheel"]
    return options


def pythons_of_cibuildwheel() -> list[str]:
    return [each.partition("-")[0] for each in cibuildwheel()["build"].split()]


def blocks(language: str, word: str) -> list[str]:
    """The page's blocks of code in a language that have a word."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [text for text in found if word in text]
