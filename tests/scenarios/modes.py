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
