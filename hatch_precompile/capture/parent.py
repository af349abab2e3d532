"""The capture of an entrypoint: a process of its own traces its samples (child.py) and leaves files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hatch_precompile.backends import backend, variants_for_this_machine
from hatch_precompile.config import Entrypoint
from hatch_precompile.config.tuned_kernels import UNTUNED, TunedKernel, TunedKernels
from hatch_precompile.errors import CaptureError
from hatch_precompile.events import Event, printed, received
from hatch_precompile.processes import reason_left, run_module, with_advice
from hatch_precompile.records import CAPTURE, Capture
from hatch_precompile.reuse.previous_wheel import Earlier

__all__ = ["CHILD", "FAILED", "TRACEBACK", "Request", "run_capture"]

CHILD = "hatch_precompile.capture.child"

TRACEBACK = "HATCH_PRECOMPILE_TRACEBACK"
"""The variable of the environment with which a build shows the tracebacks of errors that are not its own."""

FAILED = 3
"""The child's exit code where the author can do something about it."""


class Request(msgspec.Struct, frozen=True):
    """One entrypoint to capture. `directory` must exist and be empty; `earlier`: the folder of an earlier
    capture, or empty; `headers`: the folder that all captures of a build may keep compiled headers in;
    `captures`: how many these are; `traceback`: whether errors come with one; `tuned`: by variant, what
    `hatch-precompile tune` found."""

    entrypoint: Entrypoint
    package: str
    variants: list[str]
    directory: str
    earlier: str = ""
    headers: str = ""
    captures: int = 1
    traceback: bool = False
    tuned: dict[str, dict[str, TunedKernel]] = {}


def run_capture(
    entrypoint: Entrypoint,
    package: str,
    variants: list[str],
    *,
    paths: Sequence[Path],
    work: Path,
    timeout: float,
    on_event: Callable[[Event], None],
    earlier: Earlier | None = None,
    headers: Path | None = None,
    captures: int = 1,
    shared: Path | None = None,
    tuned: TunedKernels = UNTUNED,
) -> tuple[Capture, Path]:
    """The capture of an entrypoint, and the folder with its files. Raises CaptureError.

    paths: where the package and the samples are found; work: a directory to make; timeout: seconds without
    progress; earlier: taken over where nothing has changed; headers, captures: see `Request`;
    shared: a folder for what all captures of a build may share; tuned: see `Request`.
    """
    directory = work / "capture"
    directory.mkdir(parents=True)
    known = work / "earlier"
    has_known = earlier is not None and earlier.unpack(entrypoint.name, known) is not None
    temporary = work / "tmp"
    temporary.mkdir()
    request = work / "request.json"
    asked = Request(
        entrypoint,
        package,
        variants,
        str(directory),
        earlier=str(known) if has_known else "",
        headers=str(headers or work / "headers"),
        captures=captures,
        traceback=os.environ.get(TRACEBACK, "") not in ("", "0"),
        tuned=tuned.variants,
    )
    request.write_bytes(msgspec.json.encode(asked))
    heard: deque[Event] = deque(maxlen=60)

    def hear(event: Event) -> None:
        heard.append(event)
        on_event(event)

    variant = variants_for_this_machine(variants)[0]
    around = backend(variant.backend).surroundings(variant, shared or work)
    finished = run_module(
        CHILD,
        [str(request)],
        paths=paths,
        environment={
            **around.environment,
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "HATCH_PRECOMPILE": "off",
            "TMPDIR": str(temporary),  # a compiler that is killed leaves files there
        },
        inherit=True,
        quiet_limit=timeout,
        on_line=lambda line: hear(printed(line)),
        on_message=lambda message: hear(received(message)),
        may_fork=around.forked,
    )
    if finished.returncode == 0 and (directory / CAPTURE).exists():
        return msgspec.json.decode((directory / CAPTURE).read_bytes(), type=Capture), directory
    said = [event for event in heard if event.text]
    if finished.returncode == FAILED:
        raise CaptureError(f"entrypoint {entrypoint.name}: {reason_left(directory / 'error.txt', finished)}")
    if finished.timed_out:
        last = next((event.text for event in reversed(said) if event.step != "print"), "")
        raise CaptureError(
            f"entrypoint {entrypoint.name}: no progress for {timeout:.0f} s (timeout) after: {last}"
        )
    at = next((f"sample {each.sample}/{each.samples}: " for each in reversed(heard) if each.samples), "")
    ending = f"entrypoint {entrypoint.name}: {at}the capturing process {finished.ending()}"
    if finished.taken:
        raise CaptureError(ending)
    raise CaptureError(with_advice(f"{ending}:\n" + "\n".join(event.text for event in said[-30:])))
