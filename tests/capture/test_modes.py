"""An entrypoint for several modes: entries for each, and one library where theirs are equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Site, build_entrypoints

BOTH = {
    "target": "broken.models:Fine",
    "name": "fine",
    "samples": "broken.models:one",
    "mode": ["no_grad", "inference"],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Site:
    work = tmp_path_factory.mktemp("modes") / "work"
    return build_entrypoints("broken", [BOTH], Path(__file__).parents[1] / "broken", work)


def test_calls_in_each_of_them_are_served(built: Site) -> None:
    seen = built.play("modes.calls_in_each")
    assert seen == {"hits": {"no_grad": 1, "inference": 1, "train": 0}, "imported": []}


def test_libraries_that_are_equal_are_one_file(built: Site) -> None:
    bundle = built.directory / "broken/_precompiled/bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    libraries = {path for graph in manifest["graphs"] for path in graph["libraries"].values()}
    assert (len(manifest["graphs"]), len(libraries)) == (2, 1)
    assert [str(path.relative_to(bundle)) for path in bundle.rglob("graphs/*.so")] == list(libraries)
    assert libraries <= manifest["files"].keys()


def test_the_entry_that_served_last_is_asked_first(built: Site) -> None:
    seen = built.play("modes.asked_first")
    assert seen == {"seen": [[0, 1], [1, 0], [1, 0], [0, 1]], "hits": [4, 4]}
