"""Models of the gallery (tests/conformance/gallery), called beside eager code."""

from __future__ import annotations

import importlib
import time
from typing import Any

import probe
import torch


def _made(name: str, size: str) -> tuple[Any, Any]:
    """A model, and what yields its samples."""
    module = importlib.import_module(f"gallery.{size}")
    torch.manual_seed(0)
    return getattr(module, name)().eval(), getattr(module, f"{name}_samples")


def _served(name: str) -> tuple[int, int]:
    """Hits and misses so far, of which there are none with nothing installed."""
    import gallery

    entrypoint = gallery._precompiled.status()["entrypoints"].get(name, {})
    return entrypoint.get("hits", 0), entrypoint.get("misses", 0)


def _tensors(output: Any) -> list[torch.Tensor]:
    return [value for value in output.to_tuple() if isinstance(value, torch.Tensor)]


def _thrice(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with a batch three times as large."""
    return {
        name: value.repeat(3, *[1] * (value.dim() - 1)) if isinstance(value, torch.Tensor) else value
        for name, value in sample.items()
    }


def calls(name: str, target: str) -> dict[str, Any]:
    """With each sample, and with one that no entry fits; they agree with eager code, or this fails."""
    import transformers  # noqa: F401

    for module in ("gallery.small", target):
        importlib.import_module(module)
    model, samples = _made(name, "small")
    given = list(samples())  # making them may call the model
    with torch.no_grad():
        before = _served(name)
        compiled = [_tensors(model(**sample)) for sample in given]
        after = _served(name)
        eager = [_tensors(probe.eager(model)(**sample)) for sample in samples()]
        strange = _thrice(next(iter(samples())))
        between = _served(name)
        missed = _tensors(model(**strange))
        end = _served(name)
        expected = _tensors(probe.eager(model)(**_thrice(next(iter(samples())))))
    for ours, theirs in [*zip(compiled, eager, strict=True), (missed, expected)]:
        assert len(ours) == len(theirs) > 0
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    return {
        "samples": len(compiled),
        "hits": after[0] - before[0],
        "misses": after[1] - before[1],
        "hit by the strange": end[0] - between[0],
        "imported": probe.loaded("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache"),
    }


def timed_calls(name: str, size: str, target: str) -> dict[str, Any]:
    """With each sample, the first of them timed, and the largest difference from eager code."""
    importlib.import_module(target)
    start = time.perf_counter()
    import gallery  # noqa: F401

    install_s = time.perf_counter() - start
    model, make_samples = _made(name, size)
    samples = list(make_samples())
    before = _served(name)  # making the samples may have called the model
    with torch.no_grad():
        start = time.perf_counter()
        outputs = [model(**samples[0])]
        first_s = time.perf_counter() - start
        outputs += [model(**sample) for sample in samples[1:]]
        after = _served(name)
        eager = [probe.eager(model)(**sample) for sample in make_samples()]
    differences = [
        float((a - b).abs().max())
        for ours, theirs in zip(outputs, eager, strict=True)
        for a, b in zip(_tensors(ours), _tensors(theirs), strict=True)
    ]
    return {
        "install_ms": install_s * 1e3,
        "first_s": first_s,
        "samples": len(samples),
        "largest_difference": max([0.0, *differences]),
        "hits": after[0] - before[0],
        "misses": after[1] - before[1],
        "imported": probe.loaded("torch._dynamo", "torch._inductor.compile_fx"),
    }
