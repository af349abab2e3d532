"""Verification: every sample runs from the finished bundle in a clean process.

The process (child.py) has no compiler, no home, an empty PATH; while a sample runs, starting a
process, writing a file or opening a connection fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hatch_precompile.backends import backend, is_for_gpus, variants_for_this_machine
from hatch_precompile.backends.base import Surroundings
from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import VerifyError
from hatch_precompile.events import Event, printed, received
from hatch_precompile.processes import run_module, with_advice
from hatch_precompile.records import Case

__all__ = ["CHILD", "Outcome", "Request", "SampleResult", "require_hits", "run_samples"]

CHILD = "hatch_precompile.verify.child"


class Request(msgspec.Struct, frozen=True):
    """One entrypoint to verify; `package` must be importable with its bundle.

    outcome: a file to write; variant: whose libraries run, or empty for the one this machine chooses;
    with_gradients: samples, counted from 0, that are called with gradients on, too; cases: calls of samples
    in other sizes; hidden: folders from which nothing may be imported, whatever says so in this environment;
    run: whether code for a GPU runs on a real one, and not on two stand-ins
    """

    entrypoint: Entrypoint
    package: str
    outcome: str
    variant: str
    with_gradients: list[int] = []
    cases: list[Case] = []
    hidden: list[str] = []
    run: bool = False


class SampleResult(msgspec.Struct, frozen=True):
    """What one sample did.

    hit: whether an entry served it; seconds: its first call from the bundle, None if that raised;
    difference: the largest absolute one from eager, None where it was not compared by values; problem: why
    it does not pass, or empty.
    """

    sample: int
    hit: bool
    seconds: float | None
    difference: float | None
    problem: str


class Outcome(msgspec.Struct, frozen=True):
    """What the process found. `error`: why no sample could be run, or empty."""

    error: str
    results: list[SampleResult]


def require_hits(entrypoint: Entrypoint, results: Sequence[SampleResult]) -> None:
    """Raise VerifyError unless every sample hit and agreed with eager (torch.testing's tolerances)."""
    for result in results:
        if result.problem:
            raise VerifyError(f"entrypoint {entrypoint.name}: {result.problem}")


def run_samples(
    entrypoint: Entrypoint,
    package: str,
    *,
    paths: Sequence[Path],
    work: Path,
    timeout: float,
    on_event: Callable[[Event], None],
    variant: str = "",
    with_gradients: Sequence[int] = (),
    cases: Sequence[Case] = (),
    hidden: Sequence[Path] = (),
    shared: Path | None = None,
    run: bool = False,
) -> list[SampleResult]:
    """What each sample did in a clean process. Raises VerifyError where none could be run.

    paths: where the package with its bundle is found, and then the samples; work: a directory to make;
    variant: whose libraries run, where it is not for this machine to choose; with_gradients, cases, hidden,
    run: see `Request`; shared: a folder for what all verifications of a build may share.
    """
    empty = work / "empty"
    empty.mkdir(parents=True)
    temporary = work / "tmp"
    temporary.mkdir()
    request = work / "request.json"
    outcome = work / "outcome.json"
    asked = Request(
        entrypoint,
        package,
        str(outcome),
        variant,
        list(with_gradients),
        list(cases),
        [*map(str, hidden)],
        run,
    )
    request.write_bytes(msgspec.json.encode(asked))
    around = Surroundings()
    if is_for_gpus(variant):
        (one,) = variants_for_this_machine([variant])
        around = backend(one.backend).surroundings(one, shared or work)
        if run:
            around = Surroundings(forked=False)
    heard: deque[Event] = deque(maxlen=60)

    def hear(event: Event) -> None:
        heard.append(event)
        on_event(event)

    finished = run_module(
        CHILD,
        [str(request)],
        paths=paths,
        environment={
            **around.environment,
            "PATH": str(empty),
            "CXX": str(empty / "no-compiler"),
            "HATCH_PRECOMPILE": "strict",
            "TMPDIR": str(temporary),
        },
        inherit=False,
        quiet_limit=timeout,
        on_line=lambda line: hear(printed(line)),
        on_message=lambda message: hear(received(message)),
        may_fork=around.forked,
    )
    if finished.returncode == 0 and outcome.exists():
        found = msgspec.json.decode(outcome.read_bytes(), type=Outcome)
        if found.error:
            raise VerifyError(with_advice(f"entrypoint {entrypoint.name}: {found.error}"))
        return [msgspec.structs.replace(each, problem=with_advice(each.problem)) for each in found.results]
    ending = f"was silent for {timeout:.0f} s" if finished.timed_out else finished.ending()
    at = next((f"sample {each.sample}/{each.samples}: " for each in reversed(heard) if each.samples), "")
    ending = f"entrypoint {entrypoint.name}: {at}the verifying process {ending}"
    if finished.taken:
        raise VerifyError(ending)
    said = [event.text for event in heard if event.text]
    raise VerifyError(with_advice(f"{ending}:\n" + "\n".join(said[-20:])))
