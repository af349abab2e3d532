"""The whole build, in the order the data flows: capture, bundle, verify."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from hatch_precompile.bundle.writer import write_bundle, write_runtime
from hatch_precompile.capture.child import FAILED, Request
from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.config.cells import cells_of, this_cell
from hatch_precompile.config.variants import variants_for_this_machine
from hatch_precompile.errors import BuildError, CaptureError, VerifyError
from hatch_precompile.events import Event, collected, emit, printed, received
from hatch_precompile.processes import in_parallel, preloaded, reason_left, run_module, stopping_children
from hatch_precompile.records import GUARDS, Capture
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.traffic.samples import with_recorded_calls
from hatch_precompile.verify.parent import CHILD as VERIFY
from hatch_precompile.verify.parent import require_hits, run_samples
from hatch_precompile.wheel.shim import with_shim

__all__ = ["BuiltBundle", "build_bundle", "children_preloaded"]

Report = Callable[[str], None]

CAPTURE = "hatch_precompile.capture.child"


@dataclass(frozen=True)
class BuiltBundle:
    """What goes into the wheel. `directory`: the whole content of `<package>/_precompiled/`. `page`: what to
    write beside the wheel, with `report = true`."""

    directory: Path
    libraries: list[Path]
    torch_version: str
    page: str | None = None


def build_bundle(
    config: Config,
    *,
    source_roots: list[Path],
    work: Path,
    report: Report,
    table: str = "",
    root: Path | None = None,
) -> BuiltBundle:
    """Capture every entrypoint, write the bundle, verify it.

    source_roots: directories the project's packages are imported from; work: an empty directory this
    build may fill; table: where the author wrote the configuration, for errors; root: the project's
    folder, by default the working directory. Raises BuildError; with on-error = "warn" an entrypoint that
    fails is reported and left out, and only a build with none left fails.
    """
    if config.report and importlib.util.find_spec("jinja2") is None:
        raise BuildError(
            "report = true needs jinja2, which is not installed in the build environment; "
            'require "hatch-precompile[report]" in build-system.requires'
        )
    config, notes = with_recorded_calls(config, root or Path.cwd(), table)
    for note in notes:
        report(note)
    try:
        with stopping_children(), collected() as events, children_preloaded(config.verify):
            built, captures = _build(config, source_roots, work, report, table)
    except OSError as error:
        place = error.filename2 or error.filename or work
        raise BuildError(
            f"the build cannot write or read {place}: {error.strerror or error}; "
            "the folder for temporary files can be changed with TMPDIR"
        ) from error
    if not config.report:
        return built
    from hatch_precompile.report import render

    page = render(
        config,
        [(entrypoint, captured) for entrypoint, captured, _ in captures],
        built.directory / "bundle",
        events,
    )
    return dataclasses.replace(built, page=page)


def _build(
    config: Config, source_roots: list[Path], work: Path, report: Report, table: str
) -> tuple[BuiltBundle, list[tuple[Entrypoint, Capture, Path]]]:
    started = time.perf_counter()
    try:
        import torch
    except ImportError:
        raise BuildError(
            "torch is not installed in the build environment; add it to build-system.requires, "
            'pinned to what the wheel is for, as in "torch==2.13.0"'
        ) from None
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        raise BuildError(
            f"the C++ compiler {os.environ.get('CXX', 'g++')!r} was not found; install g++ or set CXX "
            "(only the build needs one, the wheel does not)"
        )
    _compare_with_matrix(config, str(torch.__version__), report)
    variants = variants_for_this_machine(list(config.variants), torch.cpu.get_capabilities(), table)
    _lay_out_package(config.package, source_roots, work / "site")
    captures = _capture_all(config, source_roots, work, report)
    directory = work / "site" / Path(*config.package.split(".")) / RUNTIME_PACKAGE
    write_runtime(directory)
    libraries = write_bundle(directory / "bundle", captures, variants)
    if config.verify:
        _verify_all(config, [entrypoint for entrypoint, _, _ in captures], source_roots, work, report)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    seconds = time.perf_counter() - started
    text = (
        f"{len(captures)} entrypoints, {sum(_entries(captured) for _, captured, _ in captures)} entries, "
        f"{sum(path.name != GUARDS for path in libraries)} libraries, {size / 1e6:.1f} MB, {seconds:.0f} s"
    )
    report(text)
    emit(Event(step="built", text=text, seconds=round(seconds, 3)))
    return BuiltBundle(directory, libraries, str(torch.__version__)), captures


def _compare_with_matrix(config: Config, torch_version: str, report: Report) -> None:
    """A build outside of the matrix is no mistake: any front end builds with what there is. It is said."""
    cell = this_cell(torch_version)
    if config.matrix is None or cell in cells_of(config.matrix):
        return
    names = ", ".join(each.name for each in cells_of(config.matrix))
    text = f"this wheel is for {cell.name}, which is not of the matrix: {names}"
    report(text)
    emit(Event(step="note", text=text))


@contextlib.contextmanager
def children_preloaded(verify: bool = True) -> Iterator[None]:
    """Let the children's imports begin at once."""
    with contextlib.ExitStack() as servers:
        servers.enter_context(preloaded(CAPTURE, "hatch_precompile.capture.session", inherit=True))
        if verify:
            servers.enter_context(preloaded(VERIFY, "hatch_precompile.verify.samples", inherit=False))
        yield


def _verify_all(
    config: Config, entrypoints: list[Entrypoint], source_roots: list[Path], work: Path, report: Report
) -> None:
    """Every variant of every one. Raises the BuildError of the first, in their order, that does not pass."""
    pairs = [(entrypoint, variant) for entrypoint in entrypoints for variant in config.variants]

    def attempt(pair: tuple[Entrypoint, str]) -> None:
        entrypoint, variant = pair
        tell = _teller(report, entrypoint, "verify", variant if len(config.variants) > 1 else "")
        started = time.perf_counter()
        tell(Event(step="start", entrypoints=len(entrypoints), variants=len(config.variants)))
        try:
            results = run_samples(
                entrypoint,
                config.package,
                paths=[work / "site", *source_roots],
                work=work / "verify" / entrypoint.name / variant,
                timeout=config.timeout,
                on_event=tell,
                variant=variant,
            )
            require_hits(entrypoint, results)
        except VerifyError as error:
            raise error if len(config.variants) == 1 else VerifyError(f"variant {variant}: {error}") from None
        tell(Event(step="end", seconds=round(time.perf_counter() - started, 3)))

    in_parallel(attempt, pairs, _jobs(config))


def _jobs(config: Config) -> int:
    return min(config.jobs or os.cpu_count() or 1, len(config.entrypoints))


def _entries(captured: Capture) -> int:
    return sum(len(frame.entries) for frame in captured.frames)


def _teller(
    report: Report, entrypoint: Entrypoint, phase: Literal["capture", "verify"], variant: str = ""
) -> Callable[[Event], None]:
    """What hands the events of one entrypoint on: as lines, and to the file of events.

    variant: the one that is verified, where there are several
    """
    step = f"verify {variant}".strip() if phase == "verify" else ""
    prefix = f"{entrypoint.name}: " + (f"{step}: " if step else "")

    def tell(event: Event) -> None:
        if event.text:
            report(prefix + event.text)
        emit(replace(event, entrypoint=entrypoint.name, phase=phase, variant=event.variant or variant))

    return tell


def _capture_all(
    config: Config, source_roots: list[Path], work: Path, report: Report
) -> list[tuple[Entrypoint, Capture, Path]]:
    def attempt(entrypoint: Entrypoint) -> tuple[Entrypoint, Capture, Path] | BuildError:
        try:
            captured, directory = _capture_one(entrypoint, config, source_roots, work, report)
        except BuildError as error:
            if config.on_error == "fail":
                raise
            return error
        return entrypoint, captured, directory

    results = in_parallel(attempt, config.entrypoints, _jobs(config))
    captured = []
    for entrypoint, result in zip(config.entrypoints, results, strict=True):
        if not isinstance(result, BuildError):
            captured.append(result)
        else:
            text = f"WARNING: entrypoint {entrypoint.name} is left out of the wheel: {result}"
            report(text)
            emit(Event(step="failed", text=text, phase="capture", entrypoint=entrypoint.name))
    if not captured:
        raise CaptureError("every entrypoint failed, so there is nothing to put into the wheel")
    return captured


def _capture_one(
    entrypoint: Entrypoint, config: Config, source_roots: list[Path], work: Path, report: Report
) -> tuple[Capture, Path]:
    home = work / "capture" / entrypoint.name
    directory = home / "capture"
    directory.mkdir(parents=True)
    request = home / "request.json"
    request.write_bytes(
        msgspec.json.encode(Request(entrypoint, config.package, list(config.variants), str(directory)))
    )
    tell = _teller(report, entrypoint, "capture")
    heard: deque[Event] = deque(maxlen=60)

    def hear(event: Event) -> None:
        heard.append(event)
        tell(event)

    tell(Event(step="start", entrypoints=len(config.entrypoints)))
    finished = run_module(
        CAPTURE,
        [str(request)],
        paths=source_roots,
        environment={"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "HATCH_PRECOMPILE": "off"},
        inherit=True,
        quiet_limit=config.timeout,
        on_line=lambda line: hear(printed(line)),
        on_message=lambda message: hear(received(message)),
    )
    said = [event for event in heard if event.text]
    if finished.returncode == 0:
        captured = msgspec.json.decode((directory / "capture.json").read_bytes(), type=Capture)
        tell(Event(step="end", entries=_entries(captured), seconds=captured.seconds))
        return captured, directory
    if finished.returncode == FAILED:
        raise CaptureError(f"entrypoint {entrypoint.name}: {reason_left(directory / 'error.txt', finished)}")
    if finished.timed_out:
        last = next((event.text for event in reversed(said) if event.step != "print"), "")
        raise CaptureError(
            f"entrypoint {entrypoint.name}: no progress for {config.timeout:.0f} s (timeout) after: {last}"
        )
    raise CaptureError(
        f"entrypoint {entrypoint.name}: the capturing process {finished.ending()}:\n"
        + "\n".join(event.text for event in said[-30:])
    )


def _lay_out_package(package: str, source_roots: list[Path], site: Path) -> None:
    """The package as the wheel will have it: links to its files, and `__init__` with the shim line."""
    relative = Path(*package.split("."))
    source = next(
        (root / relative for root in source_roots if (root / relative / "__init__.py").is_file()), None
    )
    if source is None:
        searched = ", ".join(map(str, source_roots))
        raise BuildError(f"package: {package} has no __init__.py below {searched}")
    destination = site / relative
    destination.mkdir(parents=True)
    for child in source.iterdir():
        if child.name not in ("__init__.py", "__pycache__", RUNTIME_PACKAGE):
            (destination / child.name).symlink_to(child.resolve())
    text = (source / "__init__.py").read_bytes()
    (destination / "__init__.py").write_bytes(with_shim(text, package))
