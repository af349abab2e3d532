"""The scenarios of torch's own tests of its compile packages (tests/language/programs/scenarios.py).

They run where no side effect is allowed. Each takes what the ones before it have loaded for granted.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import probe
import torch
from observing import close, hits, imported, misses, observed, status
from programs import calls, modules

DONE = probe.forbid_side_effects()

from programs import scenarios  # noqa: E402  # it is among what is watched


def _tried(name: str, function: Any, *arguments: Any) -> list[Any]:
    """Hits and misses of a call, and whether it gives what eager code gives."""
    before = status(name)
    result = observed(function, *arguments)[0]
    after = status(name)
    right = close(result, observed(probe.eager(function), *arguments)[0])
    return [after["hits"] - before["hits"], after["misses"] - before["misses"], right]


def a_basic_function() -> list[Any]:
    return _tried("plus_one", scenarios.plus_one, torch.ones(3, 2))


def entries_loaded_of_another_function_of_the_file() -> int:
    return status("plus_rows")["loaded"]


def calls_with_rows() -> dict[int, list[Any]]:
    """By the number of rows."""
    return {rows: _tried("plus_rows", scenarios.plus_rows, torch.ones(rows, 2)) for rows in (3, 4, 5, 2, 7)}


def a_basic_function_again() -> list[Any]:
    return a_basic_function()


def a_graph_break_bomb_with_recursion() -> dict[str, list[int]]:
    """What was found and the misses of that: for numbers that samples searched for, and for one beyond."""
    bomb = [torch.tensor(number) for number in range(scenarios.SIZE + 1)]
    with torch.no_grad():
        before = misses("search")
        found = [int(scenarios.search(x, 0, scenarios.SIZE - 1)) for x in bomb[:-1]]
        between = misses("search")
        beyond = int(scenarios.search(bomb[-1], 0, scenarios.SIZE - 1))
        after = misses("search")
    return {"found": found, "misses": [between - before], "beyond": [beyond, after - between]}


def _scaled(by: torch.Tensor) -> list[Any]:
    """Whether a global tensor is what a call multiplies by, and whether an entry served it."""
    calls.SCALE = by
    x, before = calls.inputs(), hits("calls")
    right = torch.equal(calls.run("reads_a_global_tensor", x), x * by)
    return [right, hits("calls") - before]


def a_global_tensor() -> dict[str, list[Any]]:
    with torch.no_grad():
        seen = {"as it is": _scaled(calls.SCALE)}
        another = torch.tensor(5.0)
        seen["another of the same kind"] = _scaled(another)
        seen["another value"] = _scaled(another.fill_(7.0))
        seen["another kind"] = _scaled(torch.tensor([5.0]))
    return seen


def models_that_come_and_go() -> dict[str, Any]:
    """Of each: was it right, and is it gone; and the hits of all."""
    lifetimes = []
    with torch.no_grad():
        for _ in range(4):
            model = modules.mixed().eval()
            right = torch.allclose(model(modules.inputs()), probe.eager(model)(modules.inputs()), atol=1e-6)
            gone = weakref.ref(model)
            del model
            gc.collect()
            lifetimes.append([right, gone() is None])
    return {"lifetimes": lifetimes, "hits": hits("mixed")}


def side_effects() -> dict[str, list[str]]:
    return {"imported": imported(), "done": DONE}
