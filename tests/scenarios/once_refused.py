"""Calls of the package tests/strangers/refused, in each mode that a caller may be in."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import probe
import torch
from refused import _precompiled, breaks, decorated, parts, sets, shapes

MODES: dict[str, Any] = {
    "no_grad": torch.no_grad,
    "grad": nullcontext,
    "inference": torch.inference_mode,
}


def calls() -> dict[str, Any]:
    """Of each entrypoint, by the caller's mode: whether it is served, and what it gives."""
    ((x,),) = decorated.samples()
    model, derived = decorated.Model().eval(), decorated.Derived().eval()
    made, tracker, policy = parts.Model().eval(), parts.Tracker().eval(), parts.Policy().eval()
    kinds = sets.Kinds().eval()
    each = {
        "multiplied": lambda: decorated.multiplied(x),
        "around": lambda: decorated.around(x),
        "within": lambda: decorated.within(x),
        "model": lambda: model(x),
        "predict": lambda: derived.predict(x),
        "shifted": lambda: decorated.Model.shifted(x),
        "before-a-break": lambda: shapes.before_a_break(x),
        "policy": lambda: policy(x),
        "assigned-after": lambda: breaks.assigned_after(x),
        "scaled-or-not": lambda: breaks.scaled_or_not(x),
        "held": lambda: breaks.held(x),
        "kinds": lambda: kinds(x),
        "by-names": lambda: sets.by_names(x),
        "counted": lambda: breaks.counted(breaks.Counter(), breaks.Counter(), x),
        "queries-and-keys": lambda: shapes.queries_and_keys(x),
        "parts": lambda: made(x),
        "shaken": lambda: parts.shaken(x),
        "tracker": lambda: tracker(x),
        "halved": lambda: parts.halved(torch.arange(2 * 12 * 20.0).view(1, 2, 12, 20)),
    }
    return {name: {mode: _called(name, call, MODES[mode]) for mode in MODES} for name, call in each.items()}


def under_a_compile() -> dict[str, Any]:
    """What a torch.compile of the user's does with a target whose decorator enters a mode."""
    ((x,),) = decorated.samples()
    backend = probe.Backend()
    answer = torch.compile(decorated.multiplied, backend=backend)(x)
    found: dict[str, Any] = {"compiled": backend.compiled, "hits": _hits("multiplied")}
    return {**found, "same": torch.allclose(answer, decorated.multiplied(x), rtol=1e-2, atol=1e-1)}


def one_object_twice() -> dict[str, Any]:
    """Whether a call is served with one object in the places of two, and what it gives; and one with two."""
    one = breaks.Counter()
    with torch.no_grad():
        before = _hits("counted")
        answer = breaks.counted(one, one, torch.ones(2, 4))
        found = {"served": _hits("counted") > before, "answer": float(answer[0, 0])}
        before = _hits("counted")
        breaks.counted(breaks.Counter(), breaks.Counter(), torch.ones(2, 4))
    return {**found, "two are": _hits("counted") > before}


def through_sets() -> dict[str, Any]:
    """Calls that go through sets in this process' order, and whether plain code gives the same."""
    ((x,),) = decorated.samples()
    model, scaled = sets.Kinds().eval(), x
    for kind in model.kinds:
        scaled = scaled * model.factors[kind] + 1
    by_names = torch.stack([getattr(torch, name)(x) for name in sets.NAMES])
    return {
        "kinds": _in_order(list(model.kinds), "kinds", lambda: model(x), scaled),
        "by-names": _in_order(list(sets.NAMES), "by-names", lambda: sets.by_names(x), by_names),
    }


def _in_order(order: list[str], name: str, call: Any, expected: torch.Tensor) -> dict[str, Any]:
    before = _hits(name)
    with torch.no_grad():
        found = call()
    same = torch.allclose(found, expected)
    return {"order": " ".join(order), "served": _hits(name) > before, "as eager": same}


def another_graph() -> dict[str, bool]:
    """Whether a graph module is served: the one of the sample, one made anew, one whose graph is changed."""
    ((x,),) = decorated.samples()
    first, second = parts.Model().eval(), parts.Model().eval()
    with torch.no_grad():
        found = {
            "first": probe.served("parts", lambda: first(x), "refused"),
            "second": probe.served("parts", lambda: second(x), "refused"),
        }
        graph = second.features.graph
        (relu,) = [node for node in graph.nodes if node.op == "call_function"]
        relu.target = torch.sigmoid
        second.features.recompile()
        found["changed"] = probe.served("parts", lambda: second(x), "refused")
        found["first again"] = probe.served("parts", lambda: first(x), "refused")
        first.hooked.register_forward_pre_hook(lambda module, args: None)
        found["with another hook"] = probe.served("parts", lambda: first(x), "refused")
    return found


def _called(name: str, call: Any, mode: Any) -> dict[str, Any]:
    before = _hits(name)
    random.seed(0)
    with mode():
        answer = call()
    return {
        "served": _hits(name) > before,
        "answer": probe.described(answer),
        "inference": answer.is_inference(),
    }


def _hits(name: str) -> int:
    found = _precompiled.status()["entrypoints"]
    return int(found[name]["hits"]) if name in found else 0
