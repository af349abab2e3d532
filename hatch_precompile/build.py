"""The whole build, in the order the data flows: capture, bundle, verify."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from hatch_precompile.backends import (
    backend,
    built_here,
    by_own_names,
    is_for_gpus,
    known,
    variants_for_this_machine,
)
from hatch_precompile.backends.base import Variant
from hatch_precompile.bundle.writer import built_with, part_of, write_bundle, write_runtime
from hatch_precompile.capture.parent import CHILD as CAPTURE
from hatch_precompile.capture.parent import run_capture
from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.config.cells import Shard, cells_of, this_cell
from hatch_precompile.config.devices import captured_together, of_device, require_variants
from hatch_precompile.config.tuned_kernels import UNTUNED, TunedKernels, read_tuned_kernels
from hatch_precompile.errors import BuildError, CaptureError, VerifyError
from hatch_precompile.events import Event, collected, emit
from hatch_precompile.machine import require_known_torch, require_machine, require_room
from hatch_precompile.processes import free_memory, in_parallel, preloaded, stopping_children, within_memory
from hatch_precompile.records import GUARDS, Capture
from hatch_precompile.reuse.previous_wheel import Earlier, find_earlier
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.traffic.samples import with_recorded_calls
from hatch_precompile.validation.manifests import LeftOutRecord
from hatch_precompile.verify.parent import CHILD as VERIFY
from hatch_precompile.verify.parent import require_hits, run_samples
from hatch_precompile.wheel.layout import contents_of, digests, lay_out, link_others

__all__ = ["BuiltBundle", "build_bundle", "children_preloaded"]

Report = Callable[[str], None]

CaptureOf = tuple[Entrypoint, Capture, Path]
"""An entrypoint, its capture, and the folder with the capture's files."""

_OF_SEVERAL_BUILDS = 100  # captures: enough for compiled headers to pay


@dataclass(frozen=True)
class BuiltBundle:
    """What goes into the wheel.

    directory: the whole content of `<package>/_precompiled/`; compiled: SHA-256 of the wheel's other files as
    they were compiled and verified; page: what to write beside the wheel, with `report = true`
    """

    directory: Path
    libraries: list[Path]
    torch_version: str
    compiled: dict[str, str]
    page: str | None = None


def build_bundle(
    config: Config,
    *,
    source_roots: list[Path],
    work: Path,
    report: Report,
    files: Mapping[str, Path] | None = None,
    table: str = "",
    root: Path | None = None,
    reuse: Path | None = None,
    shard: Shard | None = None,
    headers: Path | None = None,
) -> BuiltBundle:
    """Capture every entrypoint, write the bundle, verify it.

    source_roots: directories the project's packages are imported from; work: an empty directory this
    build may fill; files: what the wheel holds, by path in it, all that verification finds of the project;
    left out, that is the package's folder, and then the source roots; table: where the author wrote the
    configuration, for errors; root: the project's folder, by default the working directory; reuse: an earlier
    wheel, from which is taken over what would be captured again alike; shard: which part of the entrypoints
    this wheel is for; headers: a folder in which several builds keep the headers that they compile.

    Raises BuildError; with on-error = "warn" an entrypoint that fails is reported and left out, and only a
    build with none left fails.
    """
    if config.report and importlib.util.find_spec("jinja2") is None:
        raise BuildError(
            "report = true needs jinja2, which is not installed in the build environment; "
            'require "hatch-precompile[report]" in build-system.requires'
        )
    if any(each.isspace() for each in str(work)):
        raise BuildError(
            f"the folder for temporary files, {work}, has a blank in its name, and commands of the compiler "
            "are taken apart at blanks; set TMPDIR to another"
        )
    require_machine()
    memory = _memory_limit(config)
    require_room(work, memory)
    config, notes = with_recorded_calls(config, root or Path.cwd(), table)
    for note in notes:
        report(note)
    tuned = UNTUNED
    if config.tuned_kernels is not None:
        tuned = read_tuned_kernels((root or Path.cwd()) / config.tuned_kernels, f"{table}.tuned-kernels")
    variants = built_here(config.variants)
    if others := [name for name in config.variants if name not in variants]:
        report(f"left out, for another kind of machine: {', '.join(others)}")
    config = replace(config, variants=tuple(by_own_names(variants, table)))
    require_variants(config)
    try:
        with (
            stopping_children(),
            collected() as events,
            within_memory(memory),
            children_preloaded(verify=bool(config.verify)),
        ):
            build = _Build(
                *(config, source_roots, work, report, shard, headers, files, root or Path.cwd(), tuned)
            )
            built, captures = build.run(table, reuse)
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


@contextlib.contextmanager
def children_preloaded(*libraries: str, verify: bool = True) -> Iterator[None]:
    """Let the children's imports begin at once. libraries: modules that they import, too."""
    with contextlib.ExitStack() as servers:
        capture = ("hatch_precompile.capture.preloaded", *libraries)
        servers.enter_context(preloaded(CAPTURE, *capture, inherit=True))
        if verify:
            samples = ("hatch_precompile.verify.samples", *libraries)
            servers.enter_context(preloaded(VERIFY, *samples, inherit=False))
        yield


class _Build:
    """One build. `work`: the directory it may fill."""

    def __init__(
        self,
        config: Config,
        source_roots: list[Path],
        work: Path,
        report: Report,
        shard: Shard | None,
        headers: Path | None,
        files: Mapping[str, Path] | None,
        root: Path,
        tuned: TunedKernels,
    ) -> None:
        self.config = config
        self.entrypoints = shard.part(config.entrypoints) if shard else config.entrypoints
        self.part = part_of(shard, config.entrypoints) if shard else None
        self.source_roots = source_roots
        self.work = work
        self.report = report
        self.headers = headers
        self.tuned = tuned
        self.site, self.others = work / "site", work / "others"
        self.files = contents_of(config.package, source_roots) if files is None else files
        # Where verification looks for modules, and where it must not.
        self.verified_in = [self.site, *source_roots] if files is None else [self.site, self.others]
        self.hidden = [] if files is None else [*source_roots, root, root / "src"]
        self.directory = self.site / Path(*config.package.split(".")) / RUNTIME_PACKAGE

    def run(self, table: str, reuse: Path | None) -> tuple[BuiltBundle, list[CaptureOf]]:
        """What goes into the wheel, and the captures it was made from."""
        started = time.perf_counter()
        torch = _torch()
        require_known_torch(str(torch.__version__))
        self._compare_with_matrix(torch)
        variants = variants_for_this_machine(self.config.variants, table)
        self._require_hardware(variants)
        if self.part is not None and any("cuda" in each.devices for each in self.entrypoints):
            raise BuildError("entrypoints for GPUs are built in one piece: leave the shards out")
        lay_out(self.files, self.config.package, self.site)
        compiled = digests(self.files, self.site)  # before the trace: what is edited meanwhile is noticed
        link_others(_modules_of(self.entrypoints), self.files, self.source_roots, self.others)
        earlier = self._find_earlier(reuse, torch) if reuse is not None else None
        captures = self._capture(self.entrypoints, self.work, earlier)
        _require_any(captures)
        write_runtime(self.directory)
        libraries = self._write(captures, variants, torch)
        work, unproven = self.work, captures
        while self.config.verify and (failed := self._verify(unproven, work)):
            work = work / "again"
            again = self._capture([each for each, captured, _ in failed if captured.taken_from], work, None)
            captures = _replaced(captures, [each for each, *_ in failed], again)
            _require_any(captures)
            libraries = self._write(captures, variants, torch)
            # What is left out may have served what others call.
            unproven = captures if len(again) < len(failed) else again
        if self.config.verify == "run":  # which the manifest says
            libraries = self._write(captures, variants, torch, run=True)
        size = sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())
        seconds = time.perf_counter() - started
        entries = sum(captured.entries for _, captured, _ in captures)
        text = (
            f"{len({each.name for each, *_ in captures})} entrypoints, {entries} entries, "
            f"{sum(path.name != GUARDS for path in libraries)} libraries, "
            f"{size / 1e6:.1f} MB, {seconds:.0f} s"
        )
        self._say(text, Event(step="built", text=text, seconds=round(seconds, 3)))
        return BuiltBundle(self.directory, libraries, str(torch.__version__), compiled), captures

    def _require_hardware(self, variants: list[Variant]) -> None:
        """Raise BuildError for `verify = "run"` where a variant cannot be run."""
        if self.config.verify != "run":
            return
        for each in variants:
            owner = backend(each.backend)
            if not owner.runs_here(each):
                raise BuildError(
                    f'verify = "run": the first {owner.hardware} here does not run {each.name}, '
                    "or there is none; build where one does, or set verify = true, which runs no kernel"
                )
        names = of_device(tuple(each.name for each in variants), "cuda")
        if len(names) > 1:
            highest = max(names, key=known("cuda").index)
            raise BuildError(
                f'verify = "run": of {", ".join(names)} the GPU here runs {highest} alone, the highest; '
                "build each on a GPU that runs no higher one"
            )

    def _write(
        self, captures: list[CaptureOf], variants: list[Variant], torch: Any, *, run: bool = False
    ) -> list[Path]:
        """run: whether kernels for GPUs were run"""
        bundle = self.directory / "bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        there = {entrypoint.name for entrypoint, *_ in captures}
        left_out = [
            LeftOutRecord(each.name, each.target) for each in self.entrypoints if each.name not in there
        ]
        versions = _built_with(torch)
        if any(is_for_gpus(each.name) for each in variants):
            versions["cuda"] = str(torch.version.cuda)
        return write_bundle(bundle, captures, variants, versions, self.part, left_out, run=run)

    def _say(self, text: str, event: Event) -> None:
        self.report(text)
        emit(event)

    def _compare_with_matrix(self, torch: Any) -> None:
        """A build outside of the matrix is no mistake: any front end builds with what there is."""
        matrix = self.config.matrix
        if matrix is None:
            return
        cell = this_cell(str(torch.__version__), torch.version.cuda if matrix.cuda else None)
        if cell in cells_of(matrix):
            return
        names = ", ".join(each.name for each in cells_of(matrix))
        text = f"this wheel is for {cell.name}, which is not of the matrix: {names}"
        self._say(text, Event(step="note", text=text))

    def _find_earlier(self, wheel: Path, torch: Any) -> Earlier | None:
        """What of a wheel was built with what builds now. Raises BuildError where it cannot be read."""
        earlier, reason = find_earlier(wheel, self.config.package, _built_with(torch))
        if not self.config.verify:
            # Whether guards still accept the samples is for verification to tell.
            earlier, reason = None, "that needs verification, and verify is false"
        if earlier is None:
            text = f"nothing is taken over from {wheel.name}: {reason}"
            self._say(text, Event(step="note", text=text))
        return earlier

    def _capture(
        self, entrypoints: Sequence[Entrypoint], work: Path, earlier: Earlier | None
    ) -> list[CaptureOf]:
        """Those that succeed. Raises the BuildError of one that does not, unless on-error is "warn"."""
        pairs = [
            (entrypoint, variants)
            for entrypoint in entrypoints
            for variants in captured_together(entrypoint, self.config.variants)
        ]

        def attempt(pair: tuple[Entrypoint, tuple[str, ...]]) -> CaptureOf | BuildError:
            entrypoint, variants = pair
            gpu = of_device(variants, "cuda")
            tell = self._teller(entrypoint, "capture", gpu[0] if gpu else "")
            tell(Event(step="start", entrypoints=len(entrypoints)))
            known = earlier
            if earlier is not None and "cuda" in entrypoint.devices:
                known, text = None, f"{entrypoint.name} is for GPUs, and compiled anew"
                tell(Event(step="note", text=text))
            try:
                captured, directory = run_capture(
                    entrypoint,
                    self.config.package,
                    list(variants),
                    paths=self.source_roots,
                    work=(work / "capture" / entrypoint.name).joinpath(*gpu),
                    timeout=self.config.timeout,
                    on_event=tell,
                    earlier=known,
                    headers=self.headers or self.work / "headers",
                    captures=self._captures_with_these_headers(entrypoints, earlier),
                    shared=self.work / "shared",
                    tuned=self.tuned,
                )
            except BuildError as error:
                if self.config.on_error == "fail":
                    raise
                return error
            tell(Event(step="end", entries=captured.entries, seconds=captured.seconds))
            return entrypoint, captured, directory

        results = in_parallel(attempt, pairs, self._jobs())
        failed: dict[str, BuildError] = {}
        for (entrypoint, _), result in zip(pairs, results, strict=True):
            if isinstance(result, BuildError):
                failed.setdefault(entrypoint.name, result)
        for entrypoint in entrypoints:
            if entrypoint.name in failed:
                self._say_left_out(entrypoint, failed[entrypoint.name], "capture")
        whole = [result for result in results if not isinstance(result, BuildError)]
        return [each for each in whole if each[0].name not in failed]

    def _captures_with_these_headers(self, entrypoints: Sequence[Entrypoint], earlier: Earlier | None) -> int:
        """About how many: compiled headers pay where there is much to compile."""
        if self.headers is not None:
            return _OF_SEVERAL_BUILDS
        return 1 if earlier else len(entrypoints)

    def _verify(self, captures: list[CaptureOf], work: Path) -> list[CaptureOf]:
        """Every variant of every one. Returns those that do not pass, where they were taken over, or on-error
        is "warn" and it was said that they are left out; raises the BuildError of the first other one."""
        variants = self.config.variants
        for_cpus = of_device(variants, "cpu")
        pairs = [(each, name) for each in captures for name in ([each[1].gpu] if each[1].gpu else for_cpus)]
        problems: dict[str, BuildError] = {}

        def attempt(pair: tuple[CaptureOf, str]) -> None:
            (entrypoint, captured, _), variant = pair
            tell = self._teller(entrypoint, "verify", variant if len(variants) > 1 else "")
            started = time.perf_counter()
            tell(Event(step="start", entrypoints=len(captures), variants=len(variants)))
            try:
                results = run_samples(
                    entrypoint,
                    self.config.package,
                    paths=self.verified_in,
                    hidden=self.hidden,
                    work=work / "verify" / entrypoint.name / variant,
                    timeout=self.config.timeout,
                    on_event=tell,
                    variant=variant,
                    with_gradients=captured.with_gradients,
                    cases=captured.cases,
                    shared=self.work / "shared",
                    run=self.config.verify == "run",
                )
                require_hits(entrypoint, results)
            except VerifyError as error:
                error = VerifyError(f"{error}{self._left_out_of_the_wheel(str(error))}")
                if captured.taken_from:
                    tell(Event(step="note", text=f"it is captured again: {error}"))
                elif len(variants) > 1:
                    error = VerifyError(f"variant {variant}: {error}")
                if not captured.taken_from and self.config.on_error == "fail":
                    raise error from None
                problems.setdefault(entrypoint.name, error)
                return
            tell(Event(step="end", seconds=round(time.perf_counter() - started, 3)))

        in_parallel(attempt, pairs, self._jobs())
        failed = [each for each in captures if each[0].name in problems]
        for entrypoint, captured, _ in failed:
            if not captured.taken_from:
                self._say_left_out(entrypoint, problems[entrypoint.name], "verify")
        return failed

    def _left_out_of_the_wheel(self, problem: str) -> str:
        """About a module that was not found, where the project has it."""
        for module in re.findall(r"No module named '([\w.]+)'", problem):
            for path in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
                if path not in self.files and any((root / path).exists() for root in self.source_roots):
                    return (
                        f"\n  The project has {path}, and the wheel has not: what .gitignore names, for one, "
                        "is left out. Add it to the wheel's files"
                    )
        return ""

    def _say_left_out(
        self, entrypoint: Entrypoint, error: BuildError, phase: Literal["capture", "verify"]
    ) -> None:
        text = f"WARNING: entrypoint {entrypoint.name} is left out of the wheel: {error}"
        self._say(text, Event(step="failed", text=text, phase=phase, entrypoint=entrypoint.name))

    def _jobs(self) -> int:
        return min(self.config.jobs or os.cpu_count() or 1, len(self.entrypoints))

    def _teller(
        self, entrypoint: Entrypoint, phase: Literal["capture", "verify"], variant: str = ""
    ) -> Callable[[Event], None]:
        """What hands the events of one entrypoint on: as lines, and to the file of events.

        variant: the one that is verified, where there are several
        """
        step = f"verify {variant}".strip() if phase == "verify" else variant
        prefix = f"{entrypoint.name}: " + (f"{step}: " if step else "")

        def tell(event: Event) -> None:
            if event.text:
                self.report(prefix + event.text)
            emit(replace(event, entrypoint=entrypoint.name, phase=phase, variant=event.variant or variant))

        return tell


def _memory_limit(config: Config) -> int | None:
    """The bytes that the children of a build may have together."""
    if config.memory_limit:
        return config.memory_limit * 1_000_000
    free = free_memory()
    return free * 4 // 5 if free else None


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise BuildError(
            "torch is not installed in the build environment; add it to build-system.requires, "
            'pinned to what the wheel is for, as in "torch==2.13.0"'
        ) from None
    return torch


def _built_with(torch: Any) -> dict[str, str]:
    return built_with(str(torch.__version__), str(torch.version.git_version))


def _require_any(captures: list[CaptureOf]) -> None:
    if not captures:
        raise CaptureError("every entrypoint failed, so there is nothing to put into the wheel")


def _replaced(
    captures: list[CaptureOf], refused: list[Entrypoint], again: list[CaptureOf]
) -> list[CaptureOf]:
    """The captures with new ones in the place of those refused; one that failed is left out."""
    new = {each[0].name: each for each in again}
    chosen = [new.get(each[0].name) if each[0] in refused else each for each in captures]
    return [each for each in chosen if each is not None]


def _modules_of(entrypoints: Sequence[Entrypoint]) -> list[str]:
    """What the build imports by name."""
    return [
        str(reference).partition(":")[0]
        for each in entrypoints
        for reference in (each.target, each.instance, each.samples, each.workload)
        if reference and ":" in str(reference)
    ]
