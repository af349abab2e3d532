"""Calls of the zoo (tests/zoo) that entries might serve, or refuse, and should not."""

from __future__ import annotations

import sys
from typing import Any

import probe
import torch
import zoo.functions
import zoo.models
import zoo.tools


def data_parallel_without_a_gpu() -> dict[str, bool]:
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    parallel = torch.nn.DataParallel(model)
    with torch.no_grad():
        served = probe.served("mlp", lambda: parallel(x))
        same = torch.allclose(parallel(x), probe.eager(model)(x), atol=1e-6)
    return {"served": served, "same": same}


def answers_to_code_that_asks_whether_it_is_compiled() -> dict[str, Any]:
    """In hits and misses, in hooks around the model, and in Python between the halves of a broken graph."""
    answers = []

    def ask(*_: object) -> None:
        answers.append(
            [
                torch.compiler.is_compiling(),
                torch.compiler.is_dynamo_compiling(),
                torch.compiler.is_exporting(),
                torch._utils.is_compiling(),
                torch.jit.is_tracing(),
            ]
        )

    class Asking:
        write = staticmethod(ask)

        def flush(self) -> None:
            pass

    model, chatty = zoo.models.Mlp().eval(), zoo.models.Chatty().eval()
    model.register_forward_hook(ask)
    model.register_forward_pre_hook(ask)
    before, sys.stdout = sys.stdout, Asking()
    with torch.no_grad():
        model(torch.randn(4, 8))
        model(torch.randn(1, 8))
        chatty(torch.randn(6))
    sys.stdout = before
    installed = zoo._precompiled.status()["installed"]
    return {
        "answers": answers,
        "hits": [probe.hits(name) for name in ("mlp", "chatty")] if installed else None,
    }


def the_newer_export_to_onnx() -> dict[str, Any]:
    """The hits there are in it, and the operations it sees."""
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    with torch.no_grad():
        model(x)
        before = probe.hits("mlp")
        exported = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    return {
        "hits": probe.hits("mlp") - before,
        "operations": [node.op_type for node in exported.model.graph],
    }


def channels_last() -> dict[str, bool]:
    """Whether a call is served, and one with its memory in that order."""
    image, whiten = torch.randn(2, 3, 4, 5), zoo.functions.whiten
    with torch.no_grad():
        return {
            "plain": probe.served("whiten", lambda: whiten(image)),
            "channels last": probe.served(
                "whiten", lambda: whiten(image.to(memory_format=torch.channels_last))
            ),
        }


def calls_in_each_mode() -> dict[str, bool]:
    """Whether an entrypoint that was compiled in inference mode is served."""
    x, halve = torch.randn(6), zoo.tools.Tool.halve

    def served(mode: Any) -> bool:
        with mode():
            return probe.served("halve", lambda: halve(x))

    modes = {"inference": torch.inference_mode, "no_grad": torch.no_grad, "grad": torch.enable_grad}
    return {name: served(mode) for name, mode in modes.items()}
