"""Tensor subclasses, as arguments and as weights (tests/language/programs/subclasses.py)."""

from __future__ import annotations

from typing import Any

import probe
import torch
from observing import hits, imported, inductor_is_imported
from programs import subclasses as of


class Other(of.Named):
    pass


def _tried(name: str, call: Any, x: Any) -> list[Any]:
    """The hits of a call, and whether it gives what eager code gives."""
    before = hits(name)
    with torch.no_grad():
        ours, expected = call(x), probe.eager(call)(x)
    same = type(ours) is type(expected) and bool((ours.as_subclass(torch.Tensor) == expected).all())
    return [hits(name) - before, same]


def as_arguments() -> dict[str, Any]:
    """Those that wrap nothing: hits and answers, and the compilers that were imported."""
    x = of.inputs()
    arguments = {
        "named": x.as_subclass(of.Named),
        "overriding": x.as_subclass(of.Tripling),
        "plain": x,
        "another": x.as_subclass(Other),
        "float64": x.double().as_subclass(of.Named),
    }
    tried = {what: _tried("doubled", of.doubled, argument) for what, argument in arguments.items()}
    return {"tried": tried, "imported": imported()}


def as_weights() -> dict[str, Any]:
    """Those that wrap tensors, which go through AOTAutograd's wrappers: hits and answers."""
    x, model = of.inputs(), of.Layer()
    tried = {"wrapping": _tried("layer", model, x)}
    model.weight.scale.fill_(0.25)
    tried["another value"] = _tried("layer", model, x)
    plain, wide = of.Layer(), of.Layer()
    plain.weight = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
    wide.weight.whole = wide.weight.whole.to(torch.int16)
    others = {
        "another instance": of.Layer(),
        "another metadata": of.Layer(bits=4),
        "no longer quantized": plain,
        "wrapping another dtype": wide,
    }
    tried |= {what: _tried("layer", other, x) for what, other in others.items()}
    return {"tried": tried, "inductor": inductor_is_imported()}
