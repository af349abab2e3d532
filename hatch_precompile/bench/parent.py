"""The wheel beside eager code and torch.compile, on this machine: each way in fresh processes of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from hatch_precompile.config import Entrypoint
from hatch_precompile.processes import run_module

__all__ = ["FIRST_OUTPUT", "WAYS", "Figures", "Request", "Run", "Way", "measure"]

Way = Literal["eager", "torch.compile", "wheel"]
WAYS: tuple[Way, ...] = get_args(Way)

FIRST_OUTPUT = "first output"
"""What a process tells when its first result is there: the parent reads its clock then."""


class Request(msgspec.Struct, frozen=True):
    """One process. `result`: the file it writes its Run to."""

    entrypoint: Entrypoint
    package: str
    way: Way
    result: str


class Run(msgspec.Struct, frozen=True):
    """What one process measured, in milliseconds, or None. `problem`: why it could not, or empty."""

    first_call_ms: float | None = None
    steady_ms: float | None = None
    problem: str = ""


class Figures(msgspec.Struct, frozen=True):
    """The medians of a way's runs. process_s: from before the process starts to its first output."""

    way: Way
    runs: int
    process_s: float | None
    first_call_ms: float | None
    steady_ms: float | None
    problem: str


def measure(
    entrypoint: Entrypoint,
    package: str,
    *,
    paths: Sequence[Path],
    work: Path,
    runs: int,
    timeout: float,
    say: Callable[[str], None],
) -> list[Figures]:
    """The figures of each way, with the entrypoint's first sample. The ways take turns.

    torch.compile starts with empty caches every time. work: a folder to make.
    """
    found: dict[Way, list[tuple[float | None, Run]]] = {way: [] for way in WAYS}
    for turn in range(runs):
        for way in WAYS:
            if any(run.problem for _, run in found[way]):
                continue
            say(f"{entrypoint.name}: run {turn + 1} of {runs}: {way}")
            home = work / f"{way}-{turn}"
            home.mkdir(parents=True)
            found[way].append(_run(entrypoint, package, way, paths, home, timeout))
    return [_figures(way, taken) for way, taken in found.items()]


def _run(
    entrypoint: Entrypoint, package: str, way: Way, paths: Sequence[Path], home: Path, timeout: float
) -> tuple[float | None, Run]:
    """The seconds to the first output, None where there was none, and what the process measured."""
    request, result = home / "request.json", home / "result.json"
    request.write_bytes(msgspec.json.encode(Request(entrypoint, package, way, str(result))))
    first: list[float] = []
    started = time.perf_counter()
    finished = run_module(
        "hatch_precompile.bench.child",
        [str(request)],
        paths=paths,
        environment={"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TMPDIR": str(home)},
        inherit=True,
        quiet_limit=timeout,
        on_line=lambda line: None,
        on_message=lambda message: first.append(time.perf_counter()),
    )
    if result.exists():
        run = msgspec.json.decode(result.read_bytes(), type=Run)
    elif finished.timed_out:
        run = Run(problem=f"it was silent for {timeout:.0f} s")
    else:
        run = Run(problem=f"its process ended with {finished.returncode}: {' '.join(finished.tail[-1:])}")
    return (first[0] - started if first else None), run


def _figures(way: Way, taken: list[tuple[float | None, Run]]) -> Figures:
    problem = next((run.problem for _, run in taken if run.problem), "")
    if problem:
        return Figures(way, len(taken), None, None, None, problem)
    return Figures(
        way,
        len(taken),
        _median((seconds for seconds, _ in taken), 3),
        _median((run.first_call_ms for _, run in taken), 3),
        _median((run.steady_ms for _, run in taken), 4),
        "",
    )


def _median(figures: Iterable[float | None], digits: int) -> float | None:
    """None unless all of them were measured."""
    measured = list(figures)
    known = [figure for figure in measured if figure is not None]
    return round(statistics.median(known), digits) if len(known) == len(measured) else None
