"""What a measured process does in itself: say when its first output is there, time calls, read its memory."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["FIRST_OUTPUT", "announce", "compilers_imported", "resident_mb", "served", "steady_state", "timed"]

FIRST_OUTPUT = "first output"
"""The line a measured process prints when its first result is in hand: the parent reads its clock then."""

WARMUP_CALLS = 10
STEADY_SECONDS = 1.0
STEADY_CALLS = 5000


def announce() -> None:
    print(FIRST_OUTPUT, flush=True)


def timed(call: Callable[[], object]) -> float:
    """Seconds one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def steady_state(call: Callable[[], object]) -> tuple[float, float]:
    """Median and least seconds of a call, once warm: as many calls as fit a second, at least 20, at most
    5000."""
    for _ in range(WARMUP_CALLS):
        call()
    seconds: list[float] = []
    end = time.perf_counter() + STEADY_SECONDS
    while len(seconds) < 20 or (len(seconds) < STEADY_CALLS and time.perf_counter() < end):
        seconds.append(timed(call))
    return statistics.median(seconds), min(seconds)


def resident_mb() -> tuple[float, float]:
    """Resident memory of this process in MB: now, and at its peak."""
    # Not getrusage: its peak starts from the parent's, carried through fork and exec.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, peak = (int(status[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return now, peak


def served(package: str) -> tuple[int, int]:
    """Hits and misses so far, of all entrypoints of a precompiled package."""
    entrypoints = importlib.import_module(f"{package}._precompiled").status()["entrypoints"].values()
    return sum(each["hits"] for each in entrypoints), sum(each["misses"] for each in entrypoints)


def compilers_imported() -> list[str]:
    """The parts of torch.compile this process has imported: none, on the native path."""
    return [name for name in ("torch._dynamo", "torch._inductor.compile_fx") if name in sys.modules]
