"""The measured process of calls.py: calls_child.py WAY TIMES, of which it prints a JSON object.

WAY is what is timed, or a library that counts instructions.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from inside import announce, served

Call = Callable[[], object]
BATCH = 20


def cases(compile_: Callable[..., Any]) -> dict[str, tuple[Call, int]]:
    """Each with the hits that twenty calls of it are, where a wheel serves them."""
    import torch
    from bench_calls import dynamic, samples, static

    def both(name: str, given: list[Any], other: list[Any]) -> dict[str, tuple[Call, int]]:
        made = {"static": getattr(static, name), "dynamic": getattr(dynamic, name)}
        torch.manual_seed(0)
        called = {
            kind: compile_(each() if isinstance(each, type) else each, kind) for kind, each in made.items()
        }
        return {
            f"{name}: static, hit": (lambda: called["static"](*given), 20),
            f"{name}: dynamic, hit": (lambda: called["dynamic"](*given), 20),
            f"{name}: dynamic, hit of another size": (lambda: called["dynamic"](*other), 20),
            f"{name}: static, miss by size": (lambda: called["static"](*other), 0),
        }

    rows, more = [[torch.randn(size, 16) for _ in range(2)] for size in (5, 7)]
    ids, ids_more = torch.randint(0, 100, (3, 7)), torch.randint(0, 100, (4, 9))
    layers, two = compile_(static.Layers(), "static"), torch.randn(2, 32)
    x = torch.zeros(4)
    increment = compile_(static.increment, "static")
    last, calls_of_two = samples.KINDS - 1, iter(range(1 << 60))
    return {
        **both("MLP", rows[:1], more[:1]),
        **both("pointwise", rows, more),
        **both("DistilBert", [ids], [ids_more]),
        "twelve layers of BERT's weights: hit": (lambda: layers(two), 20),
        "60 entries: hit of the first": (lambda: increment(0, x), 20),
        "60 entries: hit of the last": (lambda: increment(last, x), 20),
        "60 entries: hits of both in turns": (lambda: increment(next(calls_of_two) % 2 * last, x), 20),
        "60 entries: miss by number": (lambda: increment(-1, x), 0),
    }


def compiled(target: Any, kind: str) -> Any:
    import torch

    return torch.compile(target, dynamic=kind == "dynamic")


def is_installed() -> bool:
    return bool(importlib.import_module("bench_calls._precompiled").status()["installed"])


def hits() -> int:
    return served("bench_calls")[0]


def least(call: Call, times: int) -> float:
    """Microseconds of a call, in the quickest of the batches."""
    best = float("inf")
    for _ in range(max(1, times // BATCH)):
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        best = min(best, time.perf_counter() - start)
    return best / BATCH * 1e6


def main(way: str, times: int) -> None:
    import torch

    torch.set_num_threads(1)
    is_compiled = way == "torch.compile"
    with torch.no_grad():
        every = cases(compiled if is_compiled else lambda target, _: target)
        library = ctypes.PyDLL(way) if way.endswith(".so") else None
        found: dict[str, float] = {}
        for name, (call, expected) in every.items():
            if is_compiled and (name.startswith("60") or "miss" in name):
                continue  # it would compile anew
            for _ in range(30):  # guards become native code after ten
                call()
            before = hits()
            for _ in range(20):
                call()
            if is_installed() and hits() - before != expected:
                raise RuntimeError(f"{name}: {hits() - before} hits, {expected} expected")
            if library is None:
                found[name] = least(call, times)
            else:
                library.counted(ctypes.py_object(call), ctypes.c_long(times), name.encode())
    announce()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
