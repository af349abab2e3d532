"""One package with targets of every kind, built once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent


def _entrypoint(target: str, samples: str = "samples", **keys: Any) -> dict[str, Any]:
    name = target.rpartition(":")[2].rpartition(".")[2].lower()
    return {"target": target, "name": name, "samples": f"lab.core:{samples}", **keys}


ENTRYPOINTS = [
    *(
        _entrypoint(f"lab.core:{name}")
        for name in (
            *("scaled", "scriptable", "outer", "shifted", "decorated", "broken"),
            *("Base", "Derived", "Tools.static", "Tools.of_class"),
        )
    ),
    _entrypoint("lab.core:Inheriting.method"),
    _entrypoint("lab.core:down", "depths"),
    _entrypoint("lab.core:keywords", "in_every_way"),
    _entrypoint("lab.core:Table", "ids"),
    _entrypoint("lab.core:LongTable", "ids"),
    _entrypoint("lab.core:Strict", **{"on-miss": "error"}),
    _entrypoint("lab.core:Jitted", **{"on-miss": "compile"}),
    _entrypoint("lab:lazily"),
]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The package tests/transparency/lab, built and verified; shared, so read-only."""
    place = made_once(
        tmp_path_factory, "lab", lambda place: build_entrypoints("lab", ENTRYPOINTS, HERE, place / "work")
    )
    return Site(place / "work" / "installed")
