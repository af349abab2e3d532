"""One wheel for several kinds of processors: which is chosen where, and that they agree."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from hatch_precompile.backends.x86_64.levels import needed
from tests.conftest import ZOO, Site, build_entrypoints

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels of x86-64")

LEVELS = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"]
HERE = {name for name, value in torch.cpu.get_capabilities().items() if value is True}
RUNNABLE = [level for level in LEVELS if HERE.issuperset(needed(level))]
BUILT = RUNNABLE[-3:]


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Site:
    entrypoint = {
        "target": "zoo.models:Mlp",
        "samples": "zoo.samples:mlp",
        "dynamic-shapes": {"x": {"0": {"name": "batch", "min": 3, "max": 16}}},
    }
    work = tmp_path_factory.mktemp("variants") / "work"
    return build_entrypoints("zoo", [entrypoint], ZOO / "src", work, said.append, variants=BUILT)


def manifest_of(site: Site) -> dict[str, Any]:
    bundle = site.directory / "zoo" / "_precompiled" / "bundle"
    manifest: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    return manifest


def libraries_of(site: Site, variant: str) -> set[str]:
    """The files of a variant's libraries. Those of the two lowest levels may be equal, and one file."""
    return {Path(graph["libraries"][variant]).name for graph in manifest_of(site)["graphs"]}


def test_the_model_is_traced_once_and_compiled_for_each(site: Site, said: list[str]) -> None:
    manifest = manifest_of(site)
    assert [variant["name"] for variant in manifest["variants"]] == BUILT
    assert [variant["requires"] for variant in manifest["variants"]] == [list(needed(v)) for v in BUILT]
    graphs = manifest["graphs"]
    assert all(set(graph["libraries"]) == set(BUILT) for graph in graphs)
    assert sum("compiling" in line for line in said) == len(graphs)


def test_every_variant_is_verified(site: Site, said: list[str]) -> None:
    for variant in BUILT:
        assert any(line.startswith(f"mlp: verify {variant}: sample 1/") for line in said), said


@pytest.mark.parametrize("variant", BUILT)
def test_the_one_that_is_asked_for_is_used(site: Site, variant: str) -> None:
    """As the verification of each does."""
    seen = site.play("variants.chosen", asked=variant)
    assert (seen["variant"], seen["served"]) == (variant, True)
    assert {Path(path).name for path in seen["libraries"]} == libraries_of(site, variant)


def _lacking(variant: str) -> list[str]:
    """What a processor lacks that can run the one below and not this."""
    return sorted(set(needed(variant)) - set(needed(LEVELS[LEVELS.index(variant) - 1])))


@pytest.mark.parametrize("variant", BUILT)
def test_the_best_that_the_flags_allow_is_chosen_and_agrees(site: Site, variant: str) -> None:
    above = LEVELS[LEVELS.index(variant) + 1 :]
    masked = [_lacking(level)[0] for level in above[:1]]
    seen = site.play("variants.chosen", lacking=masked)
    assert (seen["variant"], seen["served"]) == (variant, True)
    assert {Path(path).name for path in seen["libraries"]} == libraries_of(site, variant)
    torch.testing.assert_close(torch.tensor(seen["answer"]), torch.tensor(seen["eager"]))


@pytest.mark.parametrize(("capability", "at_most"), [("default", "x86-64-v2"), ("avx2", "x86-64-v3")])
def test_what_torch_is_kept_to_keeps_the_wheel_too(site: Site, capability: str, at_most: str) -> None:
    best = [level for level in BUILT if LEVELS.index(level) <= LEVELS.index(at_most)][-1]
    seen = site.play("variants.chosen", environment={"ATEN_CPU_CAPABILITY": capability})
    assert (seen["variant"], seen["served"]) == (best, True)


def test_a_processor_below_all_of_them_runs_eagerly(site: Site) -> None:
    finished = site.process("variants.chosen", lacking=_lacking(BUILT[0]) or ["sse2"])
    assert finished.result["served"] is False
    assert finished.result["answer"] == finished.result["eager"]
    assert finished.stderr.count("PrecompileWarning") == 1
    assert "this CPU cannot run it" in finished.stderr
