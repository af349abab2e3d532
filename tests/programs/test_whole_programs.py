"""A whole program, built from its workload: every call a hit, of lengths that the workload has not.

`make programs` runs all of them, and measures.
"""

from __future__ import annotations

import pytest

from tests.conftest import Site, made_once
from tests.programs import run


@pytest.fixture(scope="module")
def generation(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = made_once(tmp_path_factory, "generation", lambda place: run.built("generation", place / "work"))
    return Site(place / "work" / "installed")


def test_generating_is_served_whatever_the_length_of_the_cache(generation: Site) -> None:
    served, eager = (run.used(generation, "generation", way) for way in ("wheel", "eager"))
    ((hits, misses),) = served["served"].values()
    assert (hits > 50, misses) == (True, 0)
    assert run.agree(served["outputs"], eager["outputs"])
    assert served["imported"] == eager["imported"]
