"""`float32-matmul-precision = "medium"`: what a network (tests/weights/src) answers on two processors."""

from __future__ import annotations

from typing import Any

import probe
import torch


def on_a_processor(lacking: list[str]) -> dict[str, Any]:
    """The variant there; how far answers are from eager code's, before and after weights have changed, and
    what is kept of weights then."""
    capabilities = torch.cpu.get_capabilities()
    torch.cpu.get_capabilities = lambda: {**capabilities, **dict.fromkeys(lacking, False)}
    from steady import _precompiled
    from steady.model import inputs, narrow

    net, given = narrow(), inputs()
    far, kept = [], []
    with torch.no_grad():
        for _ in range(2):
            pairs = zip(net(*given), probe.eager(net)(*given), strict=True)
            far.append([float((one - other).norm() / other.norm()) for one, other in pairs])
            kept.append(_precompiled.status()["prepared_bytes"])
            net.first.weight.mul_(-2)
    return {
        "variant": _precompiled.status()["variant"],
        "rounded": _precompiled.status()["entrypoints"]["narrow"]["rounded"],
        "hits": probe.hits("narrow", "steady"),
        "far": far,
        "kept": kept,
    }
