"""A short part of `make soak`."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import Site
from tests.tools import run, soak


def test_changes_of_weights_leave_nothing_without_the_collector(workshop: Site) -> None:
    """In objects: a few steps grow by less memory than what the allocator keeps for itself."""
    ours, theirs = (soak.soaked(workshop, "weights", 160, "off", role) for role in run.ROLES)
    assert ours["hits"] > 100
    assert ours["grown"]["objects"] - theirs["grown"]["objects"] < 20
    assert ours["grown"]["files"] == 0
    assert abs(ours["total"] - theirs["total"]) < 1e-2


def test_uninstall_lets_go_of_everything_without_the_collector(workshop: Site) -> None:
    """Of guards with shared parts, of training and of fixed weights, too."""
    code = "from tests.tools.soaking import kept; print(kept())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=soak.environment(workshop, "wheel"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "[]\n"
