"""Networks that torchao has quantized (tests/weights/src/quantized)."""

from __future__ import annotations

import sys
from typing import Any

import probe
import torch
from quantized import _precompiled
from quantized.model import Dynamic, Handing, WeightOnly, inputs, made

# Torchao imports some of the compiler itself.
_BEFORE = set(sys.modules)


def changed_and_called(entrypoint: str) -> dict[str, Any]:
    """Whether answers are as eager code's, before and after weights have changed in several ways; hits, what
    was kept of weights at last, and which parts of torch's compiler calls imported."""
    cls = {"dynamic": Dynamic, "weightonly": WeightOnly, "handing": Handing}[entrypoint]
    net, other, x, spoiled = made(cls), made(cls, seed=1), inputs(3), inputs(4)
    spoiled[1, 5], spoiled[2, 7] = torch.nan, torch.inf

    def right(network: Any, x: Any = x) -> bool:
        found, expected = network(x), probe.eager(network)(x)
        if entrypoint == "handing":
            (found, mine), (expected, other) = found, expected
            assert (mine.qdata == other.qdata).all() and (mine.scale == other.scale).all()
        return bool(torch.allclose(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True))

    with torch.no_grad():
        answers = [right(net), right(other), right(net, spoiled)]
        net.first.weight.scale.mul_(2)
        answers.append(right(net))
        net.load_state_dict(other.state_dict())
        answers.append(right(net))
        net.second.weight = made(cls, seed=2).second.weight
        answers.append(right(net))
        net.double().float()  # it swaps what the parameters are
        answers.append(right(net))
        net.first.weight.qdata = other.second.weight.qdata.t().contiguous()
        answers.append(right(net))
    compilers = ("torch._dynamo", "torch._inductor", "torch._functorch")
    return {
        "right": answers,
        "hits": probe.hits(entrypoint, "quantized"),
        "kept": _precompiled.status()["prepared_bytes"],
        "imported": sorted(name for name in set(sys.modules) - _BEFORE if name.startswith(compilers)),
    }
