"""Verification, the build's side: every sample runs from the finished bundle in a clean process.

The process (verifying.py) has no compiler, no home, an empty PATH; while a sample runs, starting a
process, writing a file or opening a connection fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import VerifyError
from hatch_precompile.processes import reason_left, run_module

__all__ = ["FAILED", "Request", "verify"]

FAILED = 3
"""The verifying process's exit code where it leaves a reason."""


class Request(msgspec.Struct, frozen=True):
    """One entrypoint to verify; `package` must be importable with its bundle."""

    entrypoint: Entrypoint
    package: str
    error: str


def verify(
    entrypoint: Entrypoint,
    package: str,
    *,
    site: Path,
    source_roots: Sequence[Path],
    work: Path,
    timeout: float,
    report: Callable[[str], None],
) -> None:
    """Raise VerifyError unless every sample hits and agrees with eager (torch.testing's tolerances).

    site: a directory that holds the package with its bundle, searched before the sources.
    """
    work.mkdir(parents=True, exist_ok=True)
    empty = work / "empty"
    empty.mkdir()
    request = work / "request.json"
    error = work / "error.txt"
    request.write_bytes(msgspec.json.encode(Request(entrypoint, package, str(error))))
    finished = run_module(
        "hatch_precompile.verifying",
        [str(request)],
        paths=[site, *source_roots],
        environment={
            "PATH": str(empty),
            "CXX": str(empty / "no-compiler"),
            "HATCH_PRECOMPILE": "strict",
            "PYTHONDONTWRITEBYTECODE": "1",  # importing a module while a sample runs is no write of ours
        },
        inherit=False,
        quiet_limit=timeout,
        on_line=report,
    )
    if finished.returncode == 0:
        return
    if finished.returncode == FAILED:
        raise VerifyError(f"entrypoint {entrypoint.name}: {reason_left(error, finished)}")
    ending = f"was silent for {timeout:.0f} s" if finished.timed_out else f"ended with {finished.returncode}"
    raise VerifyError(
        f"entrypoint {entrypoint.name}: the verifying process {ending}:\n" + "\n".join(finished.tail[-20:])
    )
