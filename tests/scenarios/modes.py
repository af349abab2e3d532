"""Calls in each mode of an entrypoint that was built for two of them."""

from __future__ import annotations

from typing import Any

import broken
import broken.models
import probe
import torch


def calls_in_each() -> dict[str, Any]:
    """Hits of a call in each mode, of a module whose calls agree with eager code."""
    model = broken.models.Fine()
    x = torch.ones(6)
    contexts = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "train": torch.enable_grad}
    hits = {}
    for name, context in contexts.items():
        before = probe.hits("fine", "broken")
        with context():
            torch.testing.assert_close(model(x), probe.eager(model)(x))
        hits[name] = probe.hits("fine", "broken") - before
    assert broken._precompiled.status()["installed"]
    return {"hits": hits, "imported": probe.compilers()}


def asked_first() -> dict[str, Any]:
    """After each call the entries in the order in which they are asked, and at the end their hits."""
    model, x = broken.models.Fine(), torch.ones(6)
    (frame,) = broken._precompiled._installation.entrypoints["fine"].frames
    seen = []
    for context in (torch.no_grad, torch.inference_mode, torch.inference_mode, torch.no_grad):
        with context():
            model(x)  # the first call of an entry loads it
            model(x)
        seen.append([frame.entries.index(entry) for entry in frame.latest])
    return {"seen": seen, "hits": [entry["hits"] for entry in probe.status("fine", "broken")["by_entry"]]}
