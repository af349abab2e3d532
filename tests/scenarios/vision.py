"""Convolution nets (tests/vision/src) that are called in many of the sizes that were declared for them."""

from __future__ import annotations

from typing import Any

import probe
import sights.model
import torch
from sights import _precompiled


def in_sizes(entrypoint: str, sizes: list[list[int]], dtype: str) -> dict[str, Any]:
    """The sizes that missed, and those whose result is not eager code's. One net, made by its own name."""
    net = getattr(sights.model, entrypoint.removesuffix("_read").removesuffix("_fixed"))()
    missed, wrong = [], []
    for size in sizes:
        given = torch.randn(size).to(getattr(torch, dtype))
        before = probe.hits(entrypoint, "sights")
        with torch.no_grad():
            found, expected = net(given), probe.eager(net)(given)
        if probe.hits(entrypoint, "sights") != before + 1:
            missed.append(size)
        near = 5e-2 if dtype == "bfloat16" else 1e-4
        if found.shape != expected.shape or not torch.allclose(found, expected, atol=near, rtol=near):
            wrong.append([size, (found - expected).abs().max().item()])
    return {
        "missed": missed,
        "wrong": wrong,
        "misses": _precompiled.status()["entrypoints"][entrypoint]["misses"],
    }
