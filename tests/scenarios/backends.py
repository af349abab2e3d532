"""A wheel for two kinds of hardware (tests/backends)."""

from __future__ import annotations

from typing import Any

import torch
from shelf import _precompiled
from shelf.models import Layer


def called() -> list[Any]:
    """The variant, why nothing is installed, hits of the model, and whether its answer is eager code's."""
    torch.manual_seed(0)
    model, x = Layer().eval(), torch.randn(3, 8)
    with torch.no_grad():
        found = model(x)
        status = _precompiled.status()
        _precompiled.uninstall()
        same = torch.allclose(found, model(x), atol=1e-5)
    return [status["variant"], status["reason"], status["entrypoints"]["layer"]["hits"], same]
