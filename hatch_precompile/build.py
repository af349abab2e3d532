"""The whole build, in the order the data flows: capture, bundle, verify."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hatch_precompile.bundle import write_bundle, write_runtime
from hatch_precompile.capture.record import Part
from hatch_precompile.capture.worker import FAILED, PROGRESS, Request
from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.errors import BuildError, CaptureError
from hatch_precompile.processes import in_parallel, reason_left, run_module, stopping_children
from hatch_precompile.variants import variants_for_this_machine
from hatch_precompile.verify import verify
from hatch_precompile.wheel import with_shim

__all__ = ["BuiltBundle", "build_bundle"]

Report = Callable[[str], None]


@dataclass(frozen=True)
class BuiltBundle:
    """What goes into the wheel. `directory`: the whole content of `<package>/_precompiled/`."""

    directory: Path
    libraries: list[Path]
    torch_version: str


def build_bundle(
    config: Config, *, root: Path, source_roots: list[Path], work: Path, report: Report
) -> BuiltBundle:
    """Capture every entrypoint, write the bundle, verify it.

    root: the project; source_roots: directories its packages are imported from; work: an empty
    directory this build may fill. Raises BuildError; with on-error = "warn" an entrypoint that fails
    is reported and left out, and only a build with none left fails.
    """
    try:
        with stopping_children():
            return _build_bundle(config, source_roots, work, report)
    except OSError as error:
        place = error.filename2 or error.filename or work
        raise BuildError(
            f"the build cannot write or read {place}: {error.strerror or error}; "
            "the folder for temporary files can be changed with TMPDIR"
        ) from error


def _build_bundle(config: Config, source_roots: list[Path], work: Path, report: Report) -> BuiltBundle:
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
    variants = variants_for_this_machine(list(config.variants), torch.cpu.get_capabilities())
    _lay_out_package(config.package, source_roots, work / "site")
    parts = _capture_all(config, source_roots, work, report)
    directory = work / "site" / Path(*config.package.split(".")) / "_precompiled"
    write_runtime(directory)
    libraries = write_bundle(directory / "bundle", parts, variants)
    if config.verify:
        _verify_all(config, [entrypoint for entrypoint, _, _ in parts], source_roots, work, report)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    report(
        f"{len(parts)} entrypoints, {sum(len(f.entries) for _, p, _ in parts for f in p.frames)} entries, "
        f"{len(libraries)} libraries, {size / 1e6:.1f} MB, {time.perf_counter() - started:.0f} s"
    )
    return BuiltBundle(directory, libraries, str(torch.__version__))


def _verify_all(
    config: Config, entrypoints: list[Entrypoint], source_roots: list[Path], work: Path, report: Report
) -> None:
    """Raises the BuildError of the first entrypoint, in their order, whose samples do not pass."""

    def attempt(entrypoint: Entrypoint) -> None:
        verify(
            entrypoint,
            config.package,
            site=work / "site",
            source_roots=source_roots,
            work=work / "verify" / entrypoint.name,
            timeout=config.timeout,
            report=_prefixed(report, f"{entrypoint.name}: verify"),
        )

    in_parallel(attempt, entrypoints, _jobs(config))


def _jobs(config: Config) -> int:
    return min(config.jobs or os.cpu_count() or 1, len(config.entrypoints))


def _prefixed(report: Report, prefix: str) -> Report:
    return lambda line: report(f"{prefix}: {line.removeprefix(PROGRESS)}")


def _capture_all(
    config: Config, source_roots: list[Path], work: Path, report: Report
) -> list[tuple[Entrypoint, Part, Path]]:
    def attempt(entrypoint: Entrypoint) -> tuple[Entrypoint, Part, Path] | BuildError:
        try:
            part, directory = _capture_one(entrypoint, config, source_roots, work, report)
        except BuildError as error:
            return error
        return entrypoint, part, directory

    results = in_parallel(attempt, config.entrypoints, _jobs(config))
    captured = []
    for entrypoint, result in zip(config.entrypoints, results, strict=True):
        if not isinstance(result, BuildError):
            captured.append(result)
        elif config.on_error == "fail":
            raise result
        else:
            report(f"WARNING: entrypoint {entrypoint.name} is left out of the wheel: {result}")
    if not captured:
        raise CaptureError("every entrypoint failed, so there is nothing to put into the wheel")
    return captured


def _capture_one(
    entrypoint: Entrypoint, config: Config, source_roots: list[Path], work: Path, report: Report
) -> tuple[Part, Path]:
    home = work / "capture" / entrypoint.name
    directory = home / "part"
    directory.mkdir(parents=True)
    request = home / "request.json"
    request.write_bytes(
        msgspec.json.encode(Request(entrypoint, config.package, list(config.variants), str(directory)))
    )
    finished = run_module(
        "hatch_precompile.capture.worker",
        [str(request)],
        paths=source_roots,
        environment={"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "HATCH_PRECOMPILE": "off"},
        inherit=True,
        quiet_limit=config.timeout,
        on_line=_prefixed(report, entrypoint.name),
    )
    if finished.returncode == 0:
        return msgspec.json.decode((directory / "part.json").read_bytes(), type=Part), directory
    if finished.returncode == FAILED:
        raise CaptureError(f"entrypoint {entrypoint.name}: {reason_left(directory / 'error.txt', finished)}")
    if finished.timed_out:
        last = next((line for line in reversed(finished.tail) if line.startswith(PROGRESS)), "")
        raise CaptureError(
            f"entrypoint {entrypoint.name}: no progress for {config.timeout:.0f} s (timeout) after: "
            f"{last.removeprefix(PROGRESS)}"
        )
    raise CaptureError(
        f"entrypoint {entrypoint.name}: the capturing process ended with {finished.returncode}:\n"
        + "\n".join(finished.tail[-30:])
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
        if child.name not in ("__init__.py", "__pycache__", "_precompiled"):
            (destination / child.name).symlink_to(child.resolve())
    text = (source / "__init__.py").read_bytes()
    (destination / "__init__.py").write_bytes(with_shim(text, package))
