"""What the wheel of tests/arm64 answers, on whatever processor this is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import islet
import probe
import torch
from islet import model

# What an entrypoint is, and the samples that it was built with.
CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "layers": (model.layers, model.of_layers),
    "fixed": (model.fixed, model.of_layers),
    "narrow": (model.Narrow, model.of_narrow),
    "half": (model.Half, model.of_half),
    "integers": (lambda: model.integers, model.of_integers),
    "extremes": (lambda: model.extremes, model.of_extremes),
    "collected": (lambda: model.collected, model.of_collected),
    "branched": (lambda: model.branched, model.of_branched),
    "trained": (model.Trained, model.of_trained),  # the last: it imports torch's compiler
}


def every_call() -> dict[str, Any]:
    """The variant; of each entrypoint hits and misses, and whether its answers are those of eager code."""
    right, imported = {}, []
    for name, (_, of) in CALLS.items():
        imported = probe.compilers()
        right[name] = all(_right(name, sample) for sample in of())
    said = islet._precompiled.status()
    served = {name: [each["hits"], each["misses"]] for name, each in said["entrypoints"].items()}
    return {
        "variant": said["variant"],
        "right": right,
        "served": served,
        "imported": imported,
    }


def _right(name: str, sample: Any) -> bool:
    target = CALLS[name][0]()
    if name == "trained":
        return _trains(target, *sample)
    with torch.no_grad():
        answer, eager = target(*sample), probe.eager(target)(*sample)
    return _close(answer, eager)


def _close(answer: Any, eager: Any) -> bool:
    try:
        torch.testing.assert_close(answer, eager, equal_nan=True)
    except AssertionError:
        return False
    return True


def _trains(target: Any, x: torch.Tensor) -> bool:
    gradients = []
    for call in (target, probe.eager(target)):
        target.zero_grad()
        loss = call(x)
        loss.backward()
        gradients.append([loss.detach(), *(each.grad.clone() for each in target.parameters())])
    return _close(*gradients)


def guards_after_many_calls() -> dict[str, Any]:
    """The first have a guard in Python, later ones in C; then a size that was not declared, and a dtype."""
    target, (sample, *_) = model.layers(), model.of_layers()
    with torch.no_grad():
        for rows in range(2, 22):
            target(sample[0][:1].expand(rows, -1, -1, -1).contiguous())
        loaded = "guards.so" in Path("/proc/self/maps").read_text()
        fitting = probe.hits("layers", "islet")
        target(sample[0][:1])
        target.double()(sample[0].double())
    return {"native": loaded, "hits": fitting, "misses": probe.misses("layers", "islet")}


def signals_and_threads(times: int) -> dict[str, Any]:
    """Exceptions of a signal's handler, raised and caught; then calls in threads, beside eager code."""
    target, ((x,), *_) = model.fixed(), model.of_layers()
    raised = caught = 0

    class Alarm(Exception):
        pass

    def handler(*_: Any) -> None:
        nonlocal raised
        raised += 1
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    with torch.no_grad():
        target(x)
        while raised < times:
            now = raised
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                while raised == now:
                    target(x)
            except Alarm:
                caught += 1
        signal.signal(signal.SIGALRM, before)
        expected = probe.eager(target)(x)
        wrong: list[bool] = []

        def call() -> None:
            with torch.no_grad():
                wrong.extend(not torch.allclose(target(x), expected, atol=1e-5) for _ in range(20))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"raised": raised, "caught": caught, "calls": len(wrong), "wrong": sum(wrong)}
