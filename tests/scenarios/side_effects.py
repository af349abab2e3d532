"""Processes, files and connections, where none is allowed."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probe


def of_importing_and_calling() -> dict[str, Any]:
    """What the zoo (tests/zoo) does and imports, and the hits of calls."""
    import torch  # in some builds it looks for libraries of its own

    done = probe.forbid_side_effects()
    import native

    native.a_call()
    import zoo.functions
    import zoo.models
    import zoo.tools

    warnings.simplefilter("error")
    with torch.no_grad():
        zoo.functions.whiten(torch.randn(2, 3, 4, 5))
        zoo.tools.Tool().apply(torch.randn(6))
        zoo.models.Chatty()(torch.randn(6))
    zoo._precompiled.status()
    zoo._precompiled.explain("mlp", zoo.models.Mlp().eval(), torch.randn(4, 8))
    hits = {name: probe.hits(name) for name in ("mlp", "whiten", "apply", "chatty")}
    return {"done": done, "hits": hits, "imported": probe.compilers()}


def that_the_probe_notices() -> list[str]:
    done = probe.forbid_side_effects()
    attempts: list[Callable[[], object]] = [
        lambda: Path("written").write_text(""),
        lambda: os.open("written", os.O_CREAT),
        lambda: subprocess.run(["true"], check=False),
        lambda: Path("made").mkdir(),
    ]
    for attempt in attempts:
        try:
            attempt()
        except PermissionError:
            continue
    return [event.split()[0] for event in done]
