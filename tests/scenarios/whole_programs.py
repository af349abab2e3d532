"""Programs around models (tests/programs), from the first line to the last answer."""

from __future__ import annotations

import importlib
import time
from typing import Any

import probe
import torch


def used(name: str, compiled: list[str], installed: bool) -> dict[str, Any]:
    """The program's answers, its seconds the first and the second time, and hits and misses of both times.

    compiled: the classes that torch.compile is put on
    """
    program = importlib.import_module(f"uses.{name}")
    for target in compiled:
        _compile(target)
    start = time.perf_counter()
    made = program.make()
    made_s = time.perf_counter() - start
    outputs, first_s, all_s = _times(program.use(made))
    _, _, again_s = _times(program.use(made))
    return {
        "outputs": outputs,
        "made_s": made_s,
        "first_s": first_s,
        "all_s": all_s,
        "again_s": again_s,
        "served": _served() if installed else {},
        "imported": probe.loaded("torch._dynamo", "torch._inductor.compile_fx"),
    }


def _compile(target: str) -> None:
    module, _, name = target.partition(":")
    cls = getattr(importlib.import_module(module), name)
    cls.forward = torch.compile(cls.forward)


def _times(answers: Any) -> tuple[list[Any], float, float]:
    """What came out, and the seconds to the first of it and to all."""
    start = time.perf_counter()
    found = [_plain(next(answers))]
    first_s = time.perf_counter() - start
    found += map(_plain, answers)
    return found, first_s, time.perf_counter() - start


def _plain(answer: Any) -> Any:
    return answer.tolist() if hasattr(answer, "tolist") else answer


def _served() -> dict[str, list[int]]:
    entrypoints = importlib.import_module("uses._precompiled").status()["entrypoints"]
    return {name: [each["hits"], each["misses"]] for name, each in entrypoints.items()}
