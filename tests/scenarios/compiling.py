"""Packages with torch.compile in their sources (tests/language/programs/compiled.py)."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo.utils
from observing import close, hits, observed, status
from programs import compiled


def served_where_the_package_would_compile() -> dict[str, dict[str, Any]]:
    """For each way to write it: whether it is right, the hits of each entry, what is left out."""
    x = compiled.inputs()
    called = {
        "sine": compiled.doubled_sine,
        "decorated": compiled.decorated().eval(),
        "compiling": compiled.compiling().eval(),
        "calls_it_in_a_loop": compiled.calls_it_in_a_loop,
    }
    seen = {}
    for name, call in called.items():
        ours = observed(call, x)
        hits_of_entries = [entry["hits"] for entry in status(name)["by_entry"]]
        torch.compiler.set_stance("force_eager")
        eager = observed(call, x)
        torch.compiler.set_stance("default")
        seen[name] = {
            "same": close(ours, eager),
            "hits": hits_of_entries,
            "left out": status(name)["left_out"],
        }
    return seen


def frames_that_dynamo_has_compiled() -> dict[str, int]:
    return dict(torch._dynamo.utils.counters["frames"])


def a_call_that_does_not_fit() -> dict[str, Any]:
    """It is the package's own to compile; here that is made cheap."""
    torch._TorchCompileInductorWrapper.__call__ = lambda self, graph, inputs, **_: graph.forward
    x = compiled.inputs().double()
    with torch.no_grad():
        right = torch.allclose(compiled.doubled_sine(x), x.sin() * 2)
    return {"right": right, "compiled": torch._dynamo.utils.counters["frames"]["ok"], "hits": hits("sine")}
