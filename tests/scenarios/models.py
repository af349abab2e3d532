"""Models of the gallery (tests/models/gallery), called beside eager code."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import probe
import torch
from torch.utils._pytree import tree_leaves


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


def timed_calls(name: str, own: str, module: str, target: str) -> dict[str, Any]:
    """With each sample, the first of them timed, and the largest difference from eager code.

    In one thread: other processes are measured at the same time, and threads that wait would take from them.
    """
    torch.set_num_threads(1)
    importlib.import_module(target.partition(":")[0])
    start = time.perf_counter()
    import gallery  # noqa: F401

    install_s = time.perf_counter() - start
    call, make_samples = _call(own, module, target)
    samples = list(make_samples())
    before = _served(name)  # making the samples may have called the model
    with torch.no_grad():
        start = time.perf_counter()
        outputs = [_leaves(call(*samples[0][0], **samples[0][1]))]
        first_s = time.perf_counter() - start
        outputs += [_leaves(call(*args, **kwargs)) for args, kwargs in samples[1:]]
        call_s, calls = _best(call, make_samples)
        after = _served(name)
        expected = [_leaves(probe.eager(call)(*args, **kwargs)) for args, kwargs in make_samples()]
    differences = [
        float((a.double() - b.double()).abs().max())
        for ours, theirs in zip(outputs, expected, strict=True)
        for a, b in zip(ours, theirs, strict=True)
        if a.numel() and not a.is_complex()
    ]
    return {
        "install_ms": install_s * 1e3,
        "first_s": first_s,
        "call_s": call_s,
        "calls": len(samples) + calls,
        "largest_difference": max([0.0, *differences]),
        "hits": after[0] - before[0],
        "misses": after[1] - before[1],
        "imported": probe.loaded("torch._dynamo", "torch._inductor.compile_fx"),
    }


def _best(call: Callable[..., Any], make_samples: Callable[[], Any]) -> tuple[float, int]:
    """The shortest of some calls, each with a new sample (a cache in one grows), and how many there were."""
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.5 and len(times) < 100):
        args, kwargs = list(make_samples())[-1]
        start = time.perf_counter()
        call(*args, **kwargs)
        times.append(time.perf_counter() - start)
    return min(times), len(times)


def compiled_calls(name: str, own: str, module: str, target: str) -> float:
    """Seconds of a call of what torch.compile makes of it, with its graph breaks; in one thread, as above."""
    torch.set_num_threads(1)
    call, make_samples = _call(own, module, target)
    compiled = torch.compile(call)
    with torch.no_grad():
        for _ in range(2):  # a cache may be filled in the first
            for args, kwargs in make_samples():
                compiled(*args, **kwargs)
        return _best(compiled, make_samples)[0]


def whole(name: str, own: str, module: str, target: str) -> bool:
    """Whether torch.compile takes it in one piece."""
    call, make_samples = _call(own, module, target)
    args, kwargs = next(iter(make_samples()))
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(call, backend="eager", fullgraph=True)(*args, **kwargs)
    except torch._dynamo.exc.TorchDynamoException:
        return False
    return True


def _call(own: str, module: str, target: str) -> tuple[Any, Any]:
    """A model or a function, and what yields (arguments, keywords)."""
    source = importlib.import_module(module)
    home, _, path = target.partition(":")
    torch.manual_seed(0)
    found = getattr(importlib.import_module(home), path)
    call = getattr(source, own)().eval() if isinstance(found, type) else found

    def samples() -> Any:
        for sample in getattr(source, f"{own}_samples")():
            yield ((), sample) if isinstance(sample, dict) else (sample, {})

    return call, samples


def _leaves(output: Any) -> list[torch.Tensor]:
    return [leaf.clone() for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
