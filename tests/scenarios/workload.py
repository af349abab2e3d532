"""Calls of an entrypoint of the zoo (tests/zoo) that was captured with a workload."""

from __future__ import annotations

from typing import Any

import probe
import torch
import zoo.used


def calls_like_those_of_the_workload_and_others() -> dict[str, Any]:
    """Which are served, whether an answer is right, and the compilers imported."""
    model = zoo.used.Ripple().eval()

    def served(x: torch.Tensor) -> bool:
        return probe.served("ripple", lambda: model(x))

    with torch.inference_mode():
        x = torch.randn(6)
        seen = {"the same": served(x), "another size": served(torch.randn(7))}
        right = torch.allclose(model(x), torch.sin(x) * 3)
    with torch.no_grad():
        seen["another mode"] = served(torch.randn(6))
    return {"served": seen, "right": right, "imported": probe.compilers()}
