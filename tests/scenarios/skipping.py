"""Functions that torch.compile leaves to Python (tests/language/programs/skipped.py)."""

from __future__ import annotations

from typing import Any

import probe
import programs
import torch
from observing import close, imported, observed, status
from programs import skipped


def _hits_by_function(name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in status(name)["by_entry"]:
        function = entry["function"].partition("_at_")[0]
        found[function] = found.get(function, 0) + entry["hits"]
    return found


def _tried(name: str, call: Any, *owner: Any) -> dict[str, Any]:
    x = skipped.inputs()
    seen: dict[str, Any] = {"same": close(observed(call, x), observed(probe.eager(call), x))}
    seen["hits"] = _hits_by_function(name)
    seen["skipped"] = status(name)["skipped"]
    try:
        with torch.no_grad():
            seen["explained"] = programs._precompiled.explain(name, *owner, x)[0]["hit"]
    except KeyError as error:
        seen["explained"] = error.args[0]
    try:
        seen["double"] = observed(call, x.double())
    except RuntimeError as error:
        seen["double"] = str(error)
    return seen


def calls_of_each() -> dict[str, Any]:
    """Right or not, hits, what runs as Python, what `explain` says, and what a call that misses raises."""
    model = skipped.Repeating().eval()
    return {
        **{
            name: _tried(name, getattr(skipped, name)) for name in ("calls_what_loops", "imports_in_its_loop")
        },
        "Repeating": _tried("Repeating", model, model),
    }


def compilers() -> list[str]:
    """Those that the calls have imported."""
    return imported()
