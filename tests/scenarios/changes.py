"""Changes to a call of the zoo's model (tests/zoo), each a line of a test, and taken back afterwards."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import probe
import torch
import zoo
import zoo.helpers
import zoo.models


def _call() -> dict[str, Any]:
    """What a line can change: `model(x, *args, **kwargs)` is the call, without x where it is None."""
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = zoo.models.Mlp().eval()
    return {"model": model, "x": torch.randn(4, 8), "args": (), "kwargs": {}}


def _made(call: dict[str, Any], eagerly: bool = False) -> Any:
    model = probe.eager(call["model"]) if eagerly else call["model"]
    given = () if call["x"] is None else (call["x"],)
    return model(*given, *call["args"], **call["kwargs"])


class _Undoing:
    """What a line has to change things beyond the call."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.undo = stack.callback
        self.within = stack.enter_context

    def patch(self, owner: Any, name: str, value: object) -> None:
        missing = object()
        before = vars(owner).get(name, missing)
        setattr(owner, name, value)
        self.undo(lambda: delattr(owner, name) if before is missing else setattr(owner, name, before))


def tried(changes: dict[str, str]) -> dict[str, Any]:
    """Each: was the call served before, with and after it, and did it do as eager code does."""
    seen = {label: _tried(line) for label, line in changes.items()}
    return {"changes": seen, "imported": probe.compilers()}


def _tried(line: str) -> dict[str, Any]:
    call = {**_call(), "torch": torch, "zoo": zoo}
    plain = probe.served("mlp", lambda: _made(call))
    with contextlib.ExitStack() as stack:
        undoing = _Undoing(stack)
        call.update(patch=undoing.patch, undo=undoing.undo, within=undoing.within)
        exec(line, call)
        before = probe.hits("mlp")
        got = probe.attempt(lambda: _made(call))
        changed = probe.hits("mlp") > before
        expected = probe.attempt(lambda: _made(call, eagerly=True))
    return {
        "plain": plain,
        "changed": changed,
        "again": probe.served("mlp", lambda: _made(_call())),
        "got": probe.described(got),
        "expected": probe.described(expected),
    }


def before_the_first_call(change: str) -> dict[str, Any]:
    """The hits of a call, and whether it does as eager code does."""
    warnings.simplefilter("ignore")
    exec(change, {"torch": torch, "zoo": zoo})
    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    with torch.no_grad():
        got, expected = probe.outcome(lambda: model(x)), probe.outcome(lambda: probe.eager(model)(x))
    return {"hits": probe.hits("mlp"), "same": got == expected}
