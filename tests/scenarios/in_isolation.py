"""The kiosk (tests/kiosk) as its wheel installs it, in an isolated Python that imports nothing of the tests.

A program: its argument is the name of a scenario.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import kiosk
import torch

torch.set_grad_enabled(False)


def a_call() -> dict[str, Any]:
    """Hits and misses, the compilers imported, and whether the package has its module's function."""
    x = torch.randn(6)
    torch.testing.assert_close(kiosk.tint(x), torch.sigmoid(x) * 2)
    status = kiosk._precompiled.status()["entrypoints"]["tint"]
    names = ("torch._dynamo", "torch._inductor", "hatch_precompile")
    return {
        "hits": status["hits"],
        "misses": status["misses"],
        "imported": [name for name in names if name in sys.modules],
        "same": kiosk.tint is sys.modules["kiosk.prints"].tint,
    }


def graphs_of_a_function_around_it() -> int:
    """How many torch.compile makes of one that is compiled whole."""
    compiled = []

    def backend(graph: Any, inputs: object) -> Any:
        compiled.append(graph)
        return graph.forward

    def larger(x: torch.Tensor) -> torch.Tensor:
        return kiosk.tint(x) + 1

    x = torch.randn(9)
    answer = torch.compile(larger, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(answer, torch.sigmoid(x) * 2 + 1)
    return len(compiled)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
