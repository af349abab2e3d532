"""One package of small programs, built once, and what processes that call them start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent

# Torch 2.11 and 2.12 compile what is multiplied with a number of a tensor for each value.
COUNTED = ["places"] if torch.__version__ < (2, 13) else ["factor", "places"]
ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "programs.calls:run", "name": "calls", "samples": "programs.calls:samples"},
    {
        "target": "programs.shapes:run",
        "name": "shapes",
        "samples": "programs.shapes:samples",
        "dynamic-shapes": {"x": {"0": "one"}, "y": {"0": "other"}},
    },
    {"target": "programs.shapes:bucket", "name": "bucket", "samples": "programs.shapes:buckets"},
    {
        "target": "programs.shapes:counted",
        "name": "counted",
        "samples": "programs.shapes:counted_samples",
        "dynamic-numbers": COUNTED,
    },
    {
        "target": "programs.shapes:counted_in_one_graph",
        "name": "in_one_graph",
        "samples": "programs.shapes:in_one_graph_samples",
        "fullgraph": True,
    },
    {
        "target": "programs.numbers:run",
        "name": "numbers",
        "samples": "programs.numbers:samples",
        "dynamic-numbers": ["n", "m", "f"],
    },
    {
        "target": "programs.pieces:run",
        "name": "pieces",
        "samples": "programs.pieces:samples",
        "dynamic-shapes": {"x": {"0": {"name": "rows", "min": 1, "max": 64}}},
    },
    {
        "target": "programs.pieces:Skipped",
        "name": "skipped_pieces",
        "instance": "programs.pieces:skipped",
        "samples": "programs.pieces:inputs",
        "dynamic-shapes": {"x": {"0": "rows"}},
        "on-skip": "eager",
    },
    {"target": "programs.warned:run", "name": "warned", "samples": "programs.warned:samples"},
    {
        "target": "programs.modules:Mixed",
        "name": "mixed",
        "instance": "programs.modules:mixed",
        "samples": "programs.modules:samples",
    },
    {
        "target": "programs.modules:Trained",
        "name": "trained",
        "instance": "programs.modules:trained",
        "samples": "programs.modules:samples",
        "mode": "train",
    },
    {
        "target": "programs.modules:Dropping",
        "name": "dropping",
        "instance": "programs.modules:dropping",
        "samples": "programs.modules:activations",
        "mode": "train",
    },
    {
        "target": "programs.scenarios:plus_one",
        "name": "plus_one",
        "samples": "programs.scenarios:samples",
    },
    {
        "target": "programs.scenarios:plus_rows",
        "name": "plus_rows",
        "samples": "programs.scenarios:samples",
        "dynamic-shapes": {"x": {"0": {"name": "rows", "min": 3, "max": 5}}},
    },
    {"target": "programs.scenarios:search", "name": "search", "samples": "programs.scenarios:searches"},
    *(
        {
            "target": f"programs.skipped:{name}",
            "name": name,
            "samples": "programs.skipped:samples",
            "on-skip": "eager",
        }
        for name in ("calls_what_loops", "imports_in_its_loop", "Repeating")
    ),
    {
        "target": "programs.subclasses:doubled",
        "name": "doubled",
        "samples": "programs.subclasses:samples_of_subclasses",
    },
    {"target": "programs.subclasses:Layer", "name": "layer", "samples": "programs.subclasses:samples"},
    {"target": "programs.subclasses:Nested", "name": "nested", "samples": "programs.subclasses:samples"},
    {"target": "programs.subclasses:Keeping", "name": "keeping", "samples": "programs.subclasses:samples"},
    {
        "target": "programs.modules:Recurrent",
        "name": "recurrent",
        "instance": "programs.modules:recurrent",
        "samples": "programs.modules:sequences",
    },
    {"target": "programs.compiled:doubled_sine", "name": "sine", "samples": "programs.compiled:samples"},
    *(
        {
            "target": f"programs.compiled:{name}",
            "instance": f"programs.compiled:{name.lower()}",
            "samples": "programs.compiled:samples",
        }
        for name in ("Decorated", "Compiling")
    ),
    {
        "target": "programs.compiled:calls_it_in_a_loop",
        "samples": "programs.compiled:samples",
        "on-skip": "eager",
    },
]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The package tests/language/programs, built and verified; shared, so read-only."""
    place = made_once(
        tmp_path_factory,
        "programs",
        lambda place: build_entrypoints("programs", ENTRYPOINTS, HERE, place / "work"),
    )
    return Site(place / "work" / "installed")
