"""Which variant of the zoo's code (tests/zoo) is chosen on processors of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import probe


def chosen(lacking: list[str] | None = None, asked: str | None = None) -> dict[str, Any]:
    """On a processor that lacks these capabilities, or where a variant was asked for before torch came."""
    if asked is not None:
        import zoo

        zoo._precompiled.uninstall()
        zoo._precompiled.install(asked)
    import torch

    capabilities = torch.cpu.get_capabilities()
    torch.cpu.get_capabilities = lambda: {**capabilities, **dict.fromkeys(lacking or [], False)}
    import zoo
    from zoo.models import Mlp

    torch.manual_seed(0)
    model, x = Mlp().eval(), torch.randn(4, 8)
    with torch.no_grad():
        served = probe.served("mlp", lambda: model(x))
        answer = model(x).tolist()
        variant = zoo._precompiled.status()["variant"]
        zoo._precompiled.uninstall()
        eager = model(x).tolist()
    lines = Path("/proc/self/maps").read_text().splitlines()
    libraries = {line.split()[-1] for line in lines if "_precompiled" in line}
    return {
        "variant": variant,
        "served": served,
        "answer": answer,
        "eager": eager,
        "libraries": sorted(libraries),
    }
