"""An entrypoint with a workload: its calls were captured, and they are served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import Site


def record(zoo: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest = json.loads((zoo.directory / "zoo/_precompiled/bundle/manifest.json").read_text())
    (entrypoint,) = [each for each in manifest["entrypoints"] if each["name"] == "ripple"]
    (number,) = entrypoint["frames"]
    return entrypoint, manifest["frames"][number]


def test_each_call_is_a_sample_and_those_that_one_entry_serves_share_it(zoo: Site) -> None:
    entrypoint, frame = record(zoo)
    assert entrypoint["samples"] == 3
    # The first call's input is made before the mode; that of the second, and of another object, in it.
    assert [entry["sample"] for entry in frame["entries"]] == [0, 1]


def test_the_bundle_says_what_makes_its_samples(zoo: Site) -> None:
    assert record(zoo)[0]["recipe"] == {"workload": "zoo.used:workload"}


def test_the_calls_are_served(zoo: Site) -> None:
    seen = zoo.play("workload.calls_like_those_of_the_workload_and_others")
    assert seen["served"] == {"the same": True, "another size": False, "another mode": False}
    assert seen["right"]
    assert seen["imported"] == []
