"""A wheel's kernels tuned, and built again as tuned. No GPU is here: the times are made up (measuring.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from hatch_precompile.backends.cuda import standin
from hatch_precompile.backends.cuda.cards import CARDS
from hatch_precompile.cli import main
from hatch_precompile.errors import BuildError
from hatch_precompile.processes import Finished, run_module
from tests.backends.cuda.test_libraries import needs_cuda
from tests.conftest import REPOSITORY, Site, build_entrypoints, made_once

pytestmark = needs_cuda

TESTS = REPOSITORY / "tests"
IMPORTED = ("support", "scenarios")
RIG = Path(__file__).parent / "rig"
VARIANT = "cuda-sm90"
FILE = "tuned-kernels.json"
ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "rig.kernels:tripled", "samples": "rig.models:batches", "devices": ["cuda"]},
    {
        "target": "rig.models:Trained",
        "samples": "rig.models:batches",
        "devices": ["cuda"],
        "mode": "train",
    },
]


def build(place: Path, name: str, entrypoints: list[dict[str, Any]], **table: Any) -> list[str]:
    said: list[str] = []
    build_entrypoints(
        "rig", entrypoints, place / "src", place / name, said.append, variants=[VARIANT], **table
    )
    return said


def tune(place: Path, built: str, *arguments: str) -> Any:
    """The command, on what stands in for a GPU."""

    def run_there(module: str, given: Any, *, environment: Mapping[str, str], **others: Any) -> Finished:
        assert module == "hatch_precompile.tuning.child"
        here = standin.environment_with(standin.build(place / "standin"), CARDS[VARIANT])
        others["paths"] = [REPOSITORY]
        return run_module(
            "tests.backends.cuda.measuring", given, environment={**environment, **here}, **others
        )

    with (
        patch("hatch_precompile.tuning.parent.run_module", run_there),
        patch.object(import_module("hatch_precompile.cli.tune"), "runs_here", lambda name: name == VARIANT),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.syspath_prepend(str(place / built / "installed"))
        output = ["--output", str(place / "src" / FILE), *arguments]
        return CliRunner().invoke(main, ["tune", "rig", *output], env={"COLUMNS": "200"})


def make(place: Path) -> None:
    shutil.copytree(RIG, place / "src/rig", ignore=shutil.ignore_patterns("__pycache__"))
    build(place, "first", ENTRYPOINTS)
    done = tune(place, "first", "--json")
    assert done.exit_code == 0, done.output
    (place / "tuned.json").write_text(done.stdout)
    (place / "log").write_text("\n".join(build(place, "again", ENTRYPOINTS, **{"tuned-kernels": FILE})))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "cuda-tuned", make)


def kernels(place: Path, built: str) -> dict[str, dict[str, Any]]:
    """Of a build, by their keys."""
    bundle = place / built / "installed/rig/_precompiled/bundle"
    found = [json.loads(each.read_text()) for each in sorted(bundle.rglob("*.autotuning"))]
    return {key: {"name": name, **made} for each in found for key, (name, made) in each["kernels"].items()}


def launches(place: Path, built: str) -> list[Any]:
    site = Site(place / built / "installed")
    environment = {
        "PYTHONPATH": ":".join(map(str, (site.directory, REPOSITORY, *(TESTS / each for each in IMPORTED)))),
        **standin.environment_with(standin.build(place / "standin"), CARDS[VARIANT]),
    }
    return site.play("gpus.launches_of_own_kernel", environment=environment)


def test_the_command_finds_the_fastest_of_what_inductor_tries(place: Path) -> None:
    told = json.loads((place / "tuned.json").read_text())
    assert (told["variant"], told["problems"]) == (VARIANT, [])
    before = kernels(place, "first")
    assert {each["name"].partition("_fused")[0] for each in told["tuned"]} == {"multiply_0", "triton_per"}
    for each in told["tuned"]:
        had = before[each["key"]]
        assert each["name"] == had["name"]
        assert each["arguments"].keys() == had["arguments"].keys()
        assert each["arguments"] != had["arguments"]
        assert 0 < each["microseconds"] < each["before"]
        assert each["gpu"] == CARDS[VARIANT].name


def test_a_build_takes_what_the_file_has(place: Path) -> None:
    written = json.loads((place / "src" / FILE).read_text())["variants"][VARIANT]
    before, after = kernels(place, "first"), kernels(place, "again")
    assert before.keys() == after.keys()  # a kernel is known by the same key in each build
    assert written and written.keys() < after.keys()
    for key, kernel in after.items():
        expected = written.get(key, before[key])
        for part in ("name", "arguments", "num_warps", "num_stages"):
            assert kernel[part] == expected[part]
    assert "kernels have a tuned configuration" in (place / "log").read_text()


def test_the_library_launches_them_so(place: Path) -> None:
    """512 numbers: of the author's kernel a block does 256, or as tuned 512."""
    before, after = (launches(place, built) for built in ("first", "again"))
    assert (before[0], after[0]) == ([2, 1, 1], [1, 1, 1])


def test_tuned_again_the_file_is_the_same(place: Path) -> None:
    file = place / "src" / FILE
    content = file.read_text()
    done = tune(place, "again", "--json")
    assert (done.exit_code, json.loads(done.stdout)["tuned"]) == (0, [])
    assert file.read_text() == content
    done = tune(place, "again")
    assert done.stdout.endswith("of 4 kernels for cuda-sm90 0 tuned, 3 fastest as they are\n")


def test_a_kernel_of_another_form_stops_the_build(place: Path) -> None:
    file = place / "src/broken.json"
    written = json.loads((place / "src" / FILE).read_text())
    for kernel in written["variants"][VARIANT].values():
        kernel["arguments"] = {"QBLOCK": 64}
    file.write_text(json.dumps(written))
    with pytest.raises(BuildError, match=r"tuned-kernels: the arguments of the kernel .* are QBLOCK, and a"):
        build(place, "broken", ENTRYPOINTS[:1], **{"tuned-kernels": file.name})
