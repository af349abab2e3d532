"""The workshop's wheel, built once."""

from __future__ import annotations

import pytest

from tests.conftest import Site, made_once
from tests.tools import run


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """tests/tools/src, built and verified; shared, so read-only."""
    place = made_once(tmp_path_factory, "workshop", lambda place: run.built(place / "work"))
    return Site(place / "work" / "installed")
