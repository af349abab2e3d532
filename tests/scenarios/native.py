"""Calls of the zoo's models (tests/zoo), in processes that do little else."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import probe
import torch
import zoo
import zoo.models


def a_call() -> dict[str, Any]:
    """Beside eager code: hits and misses, the compilers imported, and in what surroundings it was made."""
    torch.manual_seed(0)
    model = zoo.models.Mlp().eval()
    x = torch.randn(4, 8)
    with torch.no_grad():
        answer = model(x)
        torch.testing.assert_close(answer, probe.eager(model)(x))
    return {
        "hits": probe.hits("mlp"),
        "misses": probe.misses("mlp"),
        "imported": probe.compilers(),
        "threads": torch.get_num_threads(),
        "home": os.environ.get("HOME"),
    }


def a_call_with_a_graph_break() -> dict[str, Any]:
    """Hits of the first frame and of what follows the break."""
    model, x = zoo.models.Chatty(), torch.randn(6)
    with torch.no_grad():
        torch.testing.assert_close(model(x), torch.cos(torch.sin(x)) + 1)
    frames = [frame for frame in zoo._precompiled._installation.frames if frame.record["resume"] is not None]
    resumed = sum(entry.hits for frame in frames for entry in frame.entries)
    return {"hits": probe.hits("chatty"), "resumed": resumed, "imported": probe.compilers()}


def _in_eight_threads(model: Any, x: torch.Tensor, times: int) -> list[torch.Tensor]:
    """The answers of so many calls in each, which begin together."""
    start = threading.Barrier(8)
    answers: list[torch.Tensor] = []

    def work() -> None:
        start.wait()
        with torch.no_grad():
            for _ in range(times):
                answers.append(model(x))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def first_calls_in_threads() -> dict[str, Any]:
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    answers = _in_eight_threads(model, x, times=1)
    return {
        "answers": len(answers),
        "equal": all(torch.equal(answer, answers[0]) for answer in answers),
        "hits": probe.hits("mlp"),
        "misses": probe.misses("mlp"),
    }


def many_calls_in_threads() -> dict[str, Any]:
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    answers = _in_eight_threads(model, x, times=20)
    expected = probe.eager(model)(x)
    right = all(torch.allclose(answer, expected, atol=1e-6) for answer in answers)
    return {"answers": len(answers), "right": right, "hits": probe.hits("mlp")}


def an_instance_that_is_collected_and_another() -> dict[str, Any]:
    """Whether the first, its weight and its part are gone, and the hits of both."""

    def use() -> list[weakref.ref[Any]]:
        model = zoo.models.Mlp().eval()
        with torch.no_grad():
            torch.testing.assert_close(model(torch.ones(4, 8)), probe.eager(model)(torch.ones(4, 8)))
        return [weakref.ref(part) for part in (model, model.first.weight, model.block.linear)]

    first = use()
    gc.collect()
    gone = [reference() is None for reference in first]
    use()
    return {"gone": gone, "hits": probe.hits("mlp")}
