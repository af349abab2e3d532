"""A whole program, built from its workload: every call a hit, of lengths that the workload has not.

`make programs` runs all of them, and measures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Site, build_entrypoints, made_once
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


CHAINED = {"target": "uses.chained:joined", "workload": "uses.chained:workload", "name": "joined"}


def test_what_a_call_gives_the_next_is_what_compiled_code_gives(tmp_path: Path) -> None:
    said: list[str] = []
    site = build_entrypoints("uses", [CHAINED], run.HERE, tmp_path / "work", said.append)
    assert "joined: sample 3/3: a call of the workload where those before it are compiled" in said
    assert "joined: verify: sample 3/3: hit, largest difference from eager 0.0e+00" in said
    served = site.play("whole_programs.used", name="chained", compiled=[], installed=True)
    assert served["served"] == {"joined": [4, 0]}


def test_the_author_is_told_where_another_entrypoint_gives_it(tmp_path: Path) -> None:
    """Each is captured by itself, with the others as Python."""
    both = [
        {"target": f"uses.chained:{name}", "workload": "uses.chained:crossing", "name": name}
        for name in ("joined", "halved")
    ]
    said: list[str] = []
    build_entrypoints("uses", both, run.HERE, tmp_path / "work", said.append)
    notes = [line for line in said if "not served where the calls before it are" in line]
    (note,) = notes
    assert note.startswith("halved: verify: call 1 of the workload: ")
    assert "stride mismatch" in note
