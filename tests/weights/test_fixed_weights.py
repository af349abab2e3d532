"""`weights = "fixed"`: what was computed of weights is computed again when one of them has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Site, build_entrypoints, made_once
from tests.support.hardware import about_x86

pytestmark = about_x86("weights packed for oneDNN,")

HERE = Path(__file__).parent
TABLES = [
    {
        "target": "steady.model:Net",
        "instance": "steady.model:trained",
        "samples": "steady.model:samples",
        "weights": "fixed",
    },
    {
        "target": "steady.model:Maps",
        "instance": "steady.model:maps",
        "samples": "steady.model:samples",
        "weights": "fixed",
    },
    {
        "target": "steady.model:Unversioned",
        "instance": "steady.model:unversioned",
        "samples": "steady.model:samples",
        "mode": "inference",
        "weights": "fixed",
    },
]
# Enough to find a change that is not noticed; SEQUENCES=1000 for all.
SEQUENCES = int(os.environ.get("SEQUENCES", "150"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    def make(place: Path) -> None:
        build_entrypoints("steady", TABLES, HERE / "src", place / "work")

    return Site(made_once(tmp_path_factory, "steady", make) / "work" / "installed")


def test_random_sequences_of_changes_give_what_eager_gives(site: Site) -> None:
    seen = site.play("fixed_weights.sequences_of_changes", times=SEQUENCES)
    assert seen["calls"] > 3 * SEQUENCES
    assert seen["hits"] > seen["calls"] / 2, "some are float64"


def test_it_is_computed_once_for_each_instance_and_counted(site: Site) -> None:
    seen = site.play("fixed_weights.two_instances_that_come_and_go")
    assert seen["right"] == [True] * 10
    assert seen["times"] == 2
    kept = seen["kept"]
    assert kept["before"] == kept["none"] == 0
    assert kept["both"] == 2 * kept["one"] > 2 * 4 * 128 * 512 * 2
    assert seen["hits"] == 10
    assert seen["imported"] == []


def test_a_change_that_torch_does_not_count_is_seen_or_waits_for_refresh(site: Site) -> None:
    seen = site.play("fixed_weights.changes_that_torch_does_not_count")
    assert seen["one number"] == [True, False, True]
    assert {tuple(right) for name, right in seen.items() if name != "one number"} == {(True, True)}
    assert len(seen) > 8


def test_weights_that_are_not_finite_give_what_eager_code_gives(site: Site) -> None:
    seen = site.play("fixed_weights.weights_and_pictures_that_are_not_finite")
    assert seen["right"] == [True] * 14
    assert seen["hits"] == 15


def test_weights_can_be_swapped(site: Site) -> None:
    assert site.play("fixed_weights.weights_are_swapped") == [True] * 5


def test_what_was_computed_goes_with_its_weights_and_without_the_collector(site: Site) -> None:
    seen = site.play("fixed_weights.what_lives_without_the_collector")
    assert seen["alive"] == [False] * len(seen["alive"])
    assert seen["kept"]["a network"] > 0
    assert seen["kept"]["replaced a hundred times, each kept"] == seen["kept"]["a network"]
    assert seen["kept"]["none"] == 0


def test_first_callers_compute_it_once(site: Site) -> None:
    seen = site.play("fixed_weights.many_first_callers")
    assert seen == {"times": 1, "right": [True] * 16, "child": 0}


def test_weights_without_versions_are_computed_at_each_call(site: Site) -> None:
    seen = site.play("fixed_weights.changes_of_weights_without_versions")
    assert seen == {"right": [True, True], "kept": 0, "hits": 2}


def test_threads_and_forks_have_what_they_need(site: Site) -> None:
    seen = site.play("fixed_weights.threads_and_forks")
    assert seen == {"right": [True] * 80, "hits": 80, "children": [0, 0, 0]}


def test_modes_of_the_caller_do_not_reach_the_computation(site: Site) -> None:
    assert site.play("fixed_weights.modes_of_the_caller") == [True] * 4


def test_a_signal_while_it_is_computed_goes_to_its_handler(site: Site) -> None:
    seen = site.play("fixed_weights.an_interrupt_while_weights_are_computed")
    assert seen == {"came out": True, "right": True, "hits": 2}


def test_where_it_cannot_be_computed_the_body_runs(site: Site) -> None:
    seen = site.play("fixed_weights.weights_that_cannot_be_computed")
    assert seen["failing"] == [True, 0]
    right, kept = seen["afterwards"]
    assert right
    assert kept > 0


def test_nothing_is_left_in_torch(site: Site) -> None:
    assert site.play("fixed_weights.what_is_left_in_torch") == [["steady._precompiled.graphs.weights"], []]
