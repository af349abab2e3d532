"""Measuring one way, the process: `python -m hatch_precompile.bench.child REQUEST` (see parent.py)."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hatch_precompile.bench.parent import FIRST_OUTPUT, Request, Run
from hatch_precompile.entrypoints.call import mode_context
from hatch_precompile.entrypoints.finding import find_targets
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.errors import BuildError
from hatch_precompile.processes import connect_to_parent, tell
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.verify.agreement import run_backward

__all__ = ["main"]

_WARMUP_CALLS = 3
_SECONDS = 1.0
_FEWEST, _MOST = 10, 5000


def main(path: str) -> int:
    connect_to_parent()
    del sys.argv[1:]  # the author's code may look at it
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    try:
        run = _measure(request)
    except BuildError as error:
        run = Run(problem=str(error))
    except Exception as error:
        # Whatever the author's code or a compiler raises: one way less in the table.
        run = Run(problem=f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")
    Path(request.result).write_bytes(msgspec.json.encode(run))
    return 0


def _measure(request: Request) -> Run:
    entrypoint = request.entrypoint
    # Whatever the way, what makes the sample runs without compiled code.
    os.environ["HATCH_PRECOMPILE"] = "off"
    runtime = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}")
    sample = next(iter(samples_of(entrypoint)))
    if request.way == "wheel":
        del os.environ["HATCH_PRECOMPILE"]
        runtime.install()
    target = find_targets(entrypoint, [sample])[0]
    call = target.call
    started = time.perf_counter()
    if request.way == "torch.compile" or (request.way == "wheel" and entrypoint.activate == "compile"):
        call = target.compiled("inductor")

    def once() -> None:
        output = call(*sample.args, **sample.kwargs)
        if sample.mode == "train":
            run_backward(output)

    with mode_context(sample.mode):
        once()
        first = time.perf_counter() - started
        tell(FIRST_OUTPUT)
        steady = _steady(once)
    if request.way == "wheel" and not _hits(runtime, entrypoint.name):
        return Run(problem="the wheel does not serve the sample here; `hatch-precompile verify` says why")
    return Run(first * 1e3, steady * 1e3)


def _steady(call: Callable[[], None]) -> float:
    """Median seconds of a call, once warm: as many calls as fit a second, within limits."""
    for _ in range(_WARMUP_CALLS):
        call()
    taken: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(taken) < _FEWEST or (len(taken) < _MOST and time.perf_counter() < end):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _hits(runtime: Any, name: str) -> int:
    return int(runtime.status()["entrypoints"].get(name, {}).get("hits", 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
