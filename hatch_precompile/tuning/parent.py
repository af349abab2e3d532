"""The kernels of a wheel, measured on this machine's first GPU with each configuration that inductor tries: a
process for each library, so that one which fails leaves the others alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hatch_precompile.bundle.reader import FoundManifest, verified
from hatch_precompile.config.tuned_kernels import TunedKernel
from hatch_precompile.errors import BuildError, OutsideError
from hatch_precompile.processes import reason_left, run_module
from hatch_precompile.records import Autotuning, Configuration, GraphRecord, MeasuredKernel

__all__ = ["CHILD", "FAILED", "Outcome", "Tunable", "choose", "measured_here", "tunable"]

CHILD = "hatch_precompile.tuning.child"
FAILED = 3
_GAIN = 0.98
"""Of the time that a kernel takes now, the most that another configuration may take to be chosen: the rest is
noise."""


@dataclass(frozen=True)
class Tunable:
    """A library. file: in the bundle, what its kernels are made of"""

    variant: str
    file: str
    autotuning: Autotuning


class Outcome(msgspec.Struct, frozen=True):
    """Of one library. gpu: the name of the card"""

    gpu: str
    kernels: list[MeasuredKernel]


def tunable(found: Sequence[FoundManifest], entrypoint: str | None = None) -> list[Tunable]:
    """The libraries for GPUs that have kernels, or those of one entrypoint. Raises OutsideError."""
    return [
        Tunable(variant, file, _read(bundle, file))
        for bundle in found
        for graph in bundle.whole.graphs
        for part in _parts(graph)
        if entrypoint in (None, part.readable.partition("/")[0])
        for variant, file in part.autotuning.items()
    ]


def _parts(graph: GraphRecord) -> Iterator[GraphRecord]:
    yield graph
    if graph.backward is not None:
        yield graph.backward


def _read(bundle: FoundManifest, file: str) -> Autotuning:
    try:
        return msgspec.json.decode(verified(bundle, file), type=Autotuning)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OutsideError(f"{file} is damaged: {error}") from None


def measured_here(library: Tunable, *, work: Path, timeout: float, on_line: Callable[[str], None]) -> Outcome:
    """work: a folder to make; timeout: seconds for which the process may be silent; on_line: told what it
    prints. Raises BuildError where the kernels cannot be run."""
    temporary = work / "tmp"
    temporary.mkdir(parents=True)
    request, outcome = work / "request.json", work / "outcome.json"
    request.write_bytes(msgspec.json.encode(library.autotuning))
    finished = run_module(
        CHILD,
        [str(request), str(outcome)],
        paths=[],
        environment={
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TRITON_CACHE_DIR": str(work / "triton"),
            "TMPDIR": str(temporary),
        },
        inherit=True,
        quiet_limit=timeout,
        on_line=on_line,
        on_message=lambda message: None,
        may_fork=False,
    )
    if finished.returncode == 0 and outcome.exists():
        return msgspec.json.decode(outcome.read_bytes(), type=Outcome)
    if finished.returncode == FAILED:
        raise BuildError(f"{library.file}: {reason_left(work / 'error.txt', finished)}")
    ending = f"was silent for {timeout:.0f} s" if finished.timed_out else finished.ending()
    raise BuildError(f"{library.file}: the measuring process {ending}")


def choose(
    libraries: Sequence[tuple[Tunable, Outcome]], known: Mapping[str, TunedKernel]
) -> dict[str, TunedKernel | None]:
    """What a file of tuned kernels is to have of those that were measured, all of one variant; None: nothing,
    for one that is fastest as it is without the file.

    known: what the file has of that variant: a kernel that the wheel was built with in that configuration,
    and that is fastest so, stays as it is there
    """
    found: dict[str, TunedKernel | None] = {}
    owned = {key: kernel for library, _ in libraries for key, kernel in library.autotuning.kernels.items()}
    for key, (name, now) in owned.items():
        measured = [
            (outcome.gpu, each) for _, outcome in libraries for each in outcome.kernels if each.key == key
        ]
        times = _summed([each for _, each in measured])
        if _text(now) not in times:
            continue
        fastest, least = min(times.values(), key=lambda pair: pair[1])
        _, before = times[_text(now)]
        if least <= before * _GAIN:
            found[key] = TunedKernel(
                *(fastest.arguments, fastest.num_warps, fastest.num_stages),
                name=name,
                microseconds=round(least / len(measured), 2),
                before=round(before / len(measured), 2),
                gpu=measured[0][0],
            )
        else:
            kept = known.get(key)
            found[key] = kept if kept is not None and _text(kept) == _text(now) else None
    return found


def _summed(kernels: Sequence[MeasuredKernel]) -> dict[str, tuple[Configuration, float]]:
    """Of one kernel that several libraries have, for other sizes perhaps: the configurations that each was
    measured with and runs with, and their times together."""
    found: dict[str, tuple[Configuration, float]] = {}
    for number, kernel in enumerate(kernels):
        here = {_text(each): (each, time) for each, time in kernel.times if math.isfinite(time)}
        if number:
            here = {
                text: (each, found[text][1] + time) for text, (each, time) in here.items() if text in found
            }
        found = here
    return found


def _text(of: Configuration) -> str:
    return repr((sorted(of.arguments.items()), of.num_warps, of.num_stages))
