"""`weights = "fixed"`: what was computed of weights is computed again when one of them has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent
TABLES = [
    {
        "target": "steady.model:Net",
        "instance": "steady.model:trained",
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


def test_what_torch_does_not_notice_waits_for_refresh(site: Site) -> None:
    assert site.play("fixed_weights.a_change_that_torch_does_not_notice") == [True, False, True]


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
    assert site.play("fixed_weights.what_is_left_in_torch") == [["steady._precompiled.weights"], []]
