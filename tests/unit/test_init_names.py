"""Which classes of tests/unit/init_project `init` takes for models: names are followed as Python would."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatch_precompile.cli import main

PROJECT = Path(__file__).parent / "init_project"

MODELS = [
    ("names.Encoder:Encoder", ["encoded"]),
    ("names.layers:Root", ["x", "*rest", "**more"]),
    ("names.layers:Right", ["right"]),
    ("names.plain.model:InAPlainFolder", ["plain"]),
    ("names.through:OfAnImportedName", ["x", "*rest", "**more"]),
    ("names.through:OfAModulesName", ["x", "*rest", "**more"]),
    ("names.through:OfTorchThroughTwo", ["through_two"]),
    ("names.through:OfTheirNn", ["their_nn"]),
    ("names.through:OfAModulesNamesake", ["encoded"]),
    ("names.through:OfItAgain", ["encoded"]),
    ("names.through:InOrder", ["right"]),
    ("names.through:OfItsSubscript", ["x", "*rest", "**more"]),
    ("names.through:Mixed", ["mixed_in"]),
    ("names.wildcard:OfAWildcard", ["x", "*rest", "**more"]),
    ("names.wildcard:OfTorchByWildcard", ["renamed"]),
    ("names.wildcard:OfTheirTorch", ["their_torch"]),
    ("names.wildcard:OfALayer", ["..."]),
    ("names.conditions:OfATypesImport", ["for_types"]),
    ("names.conditions:OfATry", ["x", "*rest", "**more"]),
    ("names.conditions:OfLightning", ["lightning"]),
    ("names.conditions:Overloaded", ["x", "y=(1, 2)", "/", "*", "z=3"]),
    ("names.conditions:InAnIf", ["in_an_if"]),
]


def proposed(directory: Path) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["init", str(directory), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return {each["target"]: each for each in proposed(PROJECT)["entrypoints"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


@pytest.mark.parametrize(("target", "forward"), MODELS, ids=[target for target, _ in MODELS])
def test_a_model_is_found(found: dict[str, Any], target: str, forward: list[str]) -> None:
    assert found[target]["forward"] == forward


def test_what_a_function_imports_is_used(found: dict[str, Any]) -> None:
    assert "names.uses:User" in found
    assert "names.used:Used" not in found


def test_what_an_instance_needs_is_what_its_base_needs(found: dict[str, Any]) -> None:
    assert found["names.conditions:OfATry"]["needs"] == ["width"]
    assert found["names.layers:Root"]["instance"] == "names.layers:make_root"


def test_what_stands_beside_a_broken_file_is_read(project: Path) -> None:
    for name in ("Encoder.py", "plain/__init__.py"):
        (project / "src/names" / name).write_text("def (")
    proposal = proposed(project)
    assert sorted(line.partition(": ")[0] for line in proposal["unread"]) == [
        str(project / "src/names" / name) for name in ("Encoder.py", "plain/__init__.py")
    ]
    targets = [each["target"] for each in proposal["entrypoints"]]
    assert "names.plain.model:InAPlainFolder" in targets
    assert "names.through:OfAModulesNamesake" not in targets


def test_a_project_is_read_from_its_folder_and_not_from_where_its_name_is_installed(project: Path) -> None:
    (project / "src/names").rename(project / "src/click")
    (project / "src/click/again.py").unlink()
    targets = [each["target"] for each in proposed(project)["entrypoints"]]
    assert "click.layers:Root" in targets
    assert {target.partition(":")[0] for target in targets} <= {
        f"click.{name}"
        for name in ("Encoder", "layers", "through", "plain.model", "uses", "conditions", "wildcard")
    }


def test_a_namespace_package_is_read_where_it_is_named(project: Path) -> None:
    (project / "src/acme").mkdir()
    (project / "src/names").rename(project / "src/acme/names")
    for file in (project / "src/acme/names").rglob("*.py"):
        file.write_text(file.read_text().replace("from names import", "from acme.names import"))
    with (project / "pyproject.toml").open("a") as pyproject:
        pyproject.write('[tool.hatch.build.targets.wheel]\npackages = ["src/acme"]\n')
    targets = [each["target"] for each in proposed(project)["entrypoints"]]
    assert "acme.names.through:OfItAgain" in targets
