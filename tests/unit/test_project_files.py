"""What people find who pick the project up: what these files name is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cells.page import CELLS, Cell
from tests.conftest import REPOSITORY
from tests.unit.test_layers import BACKENDS, ROOMS

GITHUB = REPOSITORY / ".github"
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split())


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_workflows_call_targets_that_there_are(name: str) -> None:
    workflow = yaml.safe_load((GITHUB / "workflows" / name).read_text("utf-8"))
    called = [word for text in commands(workflow) for word in re.findall(r"\bmake ([a-z0-9-]+)", text)]
    assert set(called) <= targets()
    assert called or name == "release.yml"


def test_each_supported_cell_is_run_and_each_python_is_one_of_some() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text("utf-8"))
    rows = workflow["jobs"]["matrix"]["strategy"]["matrix"]["include"]
    main = Cell("3.11", re.findall(r"^TORCH := torch==(.*)$", MAKEFILE, re.MULTILINE)[0])
    assert {main, *(Cell(**row) for row in rows)} == set(CELLS)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {each.rpartition(" ")[2] for each in project["classifiers"] if ":: Python :: 3." in each}
    assert {cell.python for cell in CELLS} == declared


WORKFLOWS = [*sorted((GITHUB / "workflows").glob("*.yml")), REPOSITORY / "docs" / "workflow.yml"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_take_actions_by_their_hash_and_no_right_that_they_do_not_need(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        rights = {f"{key}: {value}" for key, value in job.get("permissions", {}).items()}
        assert not {"contents: write", "id-token: write"} <= rights
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", f"x@{'0' * 40}")), step
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_where_private_parts_of_a_dependency_are_used_it_has_an_upper_bound() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    (auditwheel,) = (each for each in project["dependencies"] if each.startswith("auditwheel"))
    assert "<" in auditwheel


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8"))
    (ruff,) = (repo for repo in hooks["repos"] if "ruff" in repo["repo"])
    assert f"ruff=={ruff['rev'].removeprefix('v')} " in MAKEFILE


def test_every_target_is_explained_by_make_help() -> None:
    assert targets() - {"help"} == set(re.findall(r'@echo "make ([a-z0-9-]+)', MAKEFILE))


def test_the_map_has_every_room() -> None:
    named = re.findall(r"`(\w+)(?:/|\.py)`", CONTRIBUTING)
    unnamed = {"formatting", "a backend", "__main__", "generate_docs"}
    assert set(ROOMS) - unnamed | BACKENDS <= set(named)


def test_paths_in_it_exist() -> None:
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.\w+)`", CONTRIBUTING)
    assert len(paths) > 8
    for path in paths:
        places = [REPOSITORY / path, REPOSITORY / "hatch_precompile" / path]
        assert any(place.exists() for place in places), path


def test_the_form_for_a_bug_asks_for_what_a_wheel_carries() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE/bug.yml").read_text("utf-8"))
    assert any("inspect --json" in field["attributes"]["label"] for field in form["body"])


def test_the_changes_are_about_this_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    changes = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(project["version"])
    assert any(heading.startswith(project["version"]) for heading in headings)
