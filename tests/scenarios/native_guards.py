"""Calls of the zoo's MLP until its guard is native code, and after that."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import probe
import torch
import zoo
import zoo.models

torch.set_grad_enabled(False)


def _entry() -> Any:
    return zoo._precompiled._installation.entrypoints["mlp"].frames[0].entries[0]


def _kinds(model: Any, x: Any, calls: int) -> list[str]:
    """What the guard is after each call."""
    kinds = []
    for _ in range(calls):
        torch.testing.assert_close(model(x), probe.eager(model)(x))
        kinds.append(type(_entry().guard).__name__)
    return kinds


def many_calls() -> dict[str, Any]:
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    kinds = _kinds(model, x, 14)
    hits = probe.hits("mlp")
    model(torch.zeros(4, 8))
    again = probe.hits("mlp") - hits
    misses = probe.misses("mlp")
    with torch.enable_grad():
        model(x)
    return {
        "kinds": kinds,
        "hits": hits,
        "again": again,
        "missed": probe.misses("mlp") - misses,
        "explained": zoo._precompiled.explain("mlp", model, x)[0]["hit"],
        "imported": probe.compilers(),
    }


def nested_tensors() -> dict[str, Any]:
    """In the first call, and once the guard is native code: what it raises, and what eager code does."""
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    nested = torch.nested.nested_tensor([x[0], x[1]])
    kinds = []
    said = [_said(probe.eager(model), nested)]
    for calls in (0, 14):
        kinds = _kinds(model, x, calls)
        said.append(_said(model, nested))
    return {"said": said, "kinds": kinds, "why": zoo._precompiled.explain("mlp", model, nested)[0]["reason"]}


def _said(model: Any, x: torch.Tensor) -> str:
    try:
        return str(type(model(x)))
    except RuntimeError as error:
        return str(error)


def a_damaged_library() -> dict[str, Any]:
    """The file is changed after the import: the calls go on as before, with one warning."""
    bundle = Path(zoo._precompiled.__file__).parent / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = {entry["guards"] for frame in manifest["frames"] for entry in frame["entries"]}
    for name in names:
        (bundle / name).write_bytes((bundle / name).read_bytes()[:-9] + b"something")
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kinds = _kinds(model, x, 24)
    return {"kinds": kinds, "said": [str(each.message) for each in said], "hits": probe.hits("mlp")}
