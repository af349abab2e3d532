"""Memory goes when it does in eager code: with the object it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Site


def test_nothing_waits_for_the_garbage_collector(lab: Site) -> None:
    """Calls, misses, changes of weights, and what an uninstall takes away."""
    seen = lab.play("lifetimes.without_the_collector")
    assert seen.pop("names") and seen.pop("count") > 2
    assert set(map(tuple, seen.values())) == {()}


def test_a_package_that_is_imported_again_and_again_leaves_nothing(lab: Site) -> None:
    seen = lab.play("lifetimes.imported_again_and_again", times=6)
    assert seen == {"classes": 1, "modules": 2, "functions": [], "hits": True, "finders": 0}


def test_a_patch_during_the_first_call_is_not_for_the_life_of_the_process(lab: Site) -> None:
    seen = lab.play("lifetimes.patched_in_the_first_call")
    assert seen == {"patched": True, "said": 1, "left_out": [1, 0], "served": True}
