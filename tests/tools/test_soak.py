"""A short part of `make soak`."""

from __future__ import annotations

from tests.conftest import Site
from tests.tools import run, soak


def test_changes_of_weights_leave_nothing_without_the_collector(workshop: Site) -> None:
    """In objects: a few steps grow by less memory than what the allocator keeps for itself."""
    ours, theirs = (soak.soaked(workshop, "weights", 160, "off", role) for role in run.ROLES)
    assert ours["hits"] > 100
    assert ours["grown"]["objects"] - theirs["grown"]["objects"] < 20
    assert ours["grown"]["files"] == 0
    assert abs(ours["total"] - theirs["total"]) < 1e-2
