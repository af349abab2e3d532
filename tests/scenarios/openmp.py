"""Libraries that a process has mapped after a call of the zoo's model (tests/zoo)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import probe
import torch
import zoo.models


def after_a_call() -> dict[str, Any]:
    """Whether it was served, the OpenMP runtimes, how many libraries are ours, and where torch is."""
    model = zoo.models.Mlp().eval()
    with torch.no_grad():
        served = probe.served("mlp", lambda: model(torch.randn(16, 8)))
        torch.randn(500, 500) @ torch.randn(500, 500)
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {Path(line.split()[-1]) for line in lines if "/" in line}
    names = ("libgomp", "libiomp", "libomp")
    return {
        "served": served,
        "openmp": sorted(str(path) for path in mapped if path.name.startswith(names)),
        "ours": len([path for path in mapped if "_precompiled/bundle" in str(path)]),
        "torch": torch.__path__[0],
    }
