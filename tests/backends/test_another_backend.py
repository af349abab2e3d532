"""A backend is one folder on each side: one that nothing else knows of is built for, verified and called.

plugin/toy goes into a copy of the plugin, runtime/toy into one of the runtime, and no other file changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Site, made_once
from tests.support.hardware import HERE

HERE_TOO = HERE.variants[0]
"""The variant that every machine of this kind runs: the wheel has it beside the toy's."""


def build(place: Path, variants: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the project's build with the copy of the plugin that lies in a folder."""
    project = place / "project"
    configuration = project / "pyproject.toml"
    text = (Path(__file__).parent / "project/pyproject.toml").read_text()
    hook = "[tool.hatch.build.hooks.precompile]\n"
    configuration.write_text(text.replace(hook, f"{hook}variants = {json.dumps(variants)}\n"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def lay_out(place: Path) -> None:
    own, hidden = Path(__file__).parent, shutil.ignore_patterns("__pycache__")
    for name, added in (("hatch_precompile", own / "plugin"), ("templates", own / "runtime")):
        shutil.copytree(REPOSITORY / name, place / name, ignore=hidden)
        shutil.copytree(added, place / name / "backends", ignore=hidden, dirs_exist_ok=True)
    shutil.copytree(own / "project", place / "project", ignore=hidden)


def make(place: Path) -> None:
    lay_out(place)
    finished = build(place, [HERE_TOO, "toy-1"])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (place / "log").write_text(finished.stdout + finished.stderr)
    (wheel,) = (place / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "another backend", make)


def test_it_is_verified_and_in_the_manifest(place: Path) -> None:
    bundle = place / "installed/shelf/_precompiled/bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert [(each["name"], each["backend"]) for each in manifest["variants"]] == [
        (HERE_TOO, HERE.name),
        ("toy-1", "toy"),
    ]
    (graph,) = manifest["graphs"]
    assert set(graph["libraries"]) == {HERE_TOO, "toy-1"}
    assert (place / "installed/shelf/_precompiled/backends/toy/__init__.py").is_file()
    assert (place / "log").read_text().count("largest difference from eager") == 2


def test_a_call_is_served_by_it(place: Path) -> None:
    assert Site(place / "installed").play("backends.called") == ["toy-1", "", 1, True]


def test_where_the_machine_lacks_something_it_is_left_out(place: Path) -> None:
    seen = Site(place / "installed").play("backends.called", environment={"TOY": "wheels wire"})
    assert seen == [HERE_TOO, "", 1, True]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toy-2", 'this machine cannot run "toy-2", its toy has no wit; build on one that has'),
        ("toy-3", 'unknown variant "toy-3"; known: "native", "cuda-native", "toy-native", '),
    ],
)
def test_the_configuration_knows_its_names(tmp_path: Path, name: str, said: str) -> None:
    lay_out(tmp_path)
    finished = build(tmp_path, [name])
    assert finished.returncode != 0
    assert f"tool.hatch.build.hooks.precompile.variants: {said}" in finished.stdout + finished.stderr
