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
    """Those that wrap tensors: hits and answers, and the compilers that were imported."""
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
    return {"tried": tried, "imported": imported()}


def wrapping_each_other() -> dict[str, Any]:
    """Hits and answers where one wraps another, and the compilers that were imported."""
    return {"tried": _tried("nested", of.Nested(), of.inputs()), "imported": imported()}


def as_results() -> dict[str, Any]:
    """Hits and answers where a call returns one."""
    x, model = of.inputs(), of.Keeping()
    before = hits("keeping")
    with torch.no_grad():
        (answer, kept), (expected, other) = model(x), probe.eager(model)(x)
    return {
        "hits": hits("keeping") - before,
        "same": bool((answer == expected).all()) and type(kept) is of.Quantized and kept.bits == other.bits,
        "wrapped": [bool((getattr(kept, n) == getattr(other, n)).all()) for n in ("whole", "scale")],
        "inductor": inductor_is_imported(),
    }
