"""What a build needs of its machine, and the versions that it knows: said before anything is traced."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from packaging.version import Version

from hatch_precompile.errors import BuildError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.runtime import prologue
from hatch_precompile.torch_versions import KNOWN_TORCH

__all__ = [
    "require_known_python",
    "require_known_torch",
    "require_known_version",
    "require_machine",
    "require_room",
]

# In bytes. The smallest model takes 900 MB of memory, most of it for the compilers. Where a larger one has
# too little, its entrypoint is named when that comes out.
_LEAST_MEMORY = 600_000_000
_LEAST_DISK = 20_000_000


def require_machine() -> None:
    """Raises BuildError where the Python is not one that is known, the torch that is installed is not, or the
    C++ compiler, Python's headers or `strip` are not there, or not new enough. Imports no torch."""
    require_known_python()
    torch = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # who imports it will see
        torch = importlib.metadata.version("torch")
        require_known_torch(torch)
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(
            f"the C++ compiler {compiler!r} was not found; install g++ or set CXX "
            "(only the build needs one, the wheel does not): "
            + _package(debian="g++", fedora="gcc-c++", conda="gxx")
        )
    if torch:
        _require_standard(compiler, torch)
    if shutil.which("strip") is None:
        raise BuildError("strip was not found; it is in the package binutils of Debian, Fedora and conda")
    _require_headers()


def require_room(work: Path, memory: int | None) -> None:
    """Raises BuildError where no build can be made in so little.

    work: the folder that is written to; memory: the bytes that all processes may have, None where that is
    not known.
    """
    disk = shutil.disk_usage(work).free
    if disk < _LEAST_DISK:
        raise BuildError(
            f"the folder for temporary files, {work}, is on a disk with {in_bytes(disk)} free, and a build "
            f"writes {in_bytes(_LEAST_DISK)} at least; free some, or set TMPDIR to another"
        )
    if memory is not None and memory < _LEAST_MEMORY:
        raise BuildError(
            f"the processes of this build may have {in_bytes(memory)} of memory together, and the compilers "
            f"take more than {in_bytes(_LEAST_MEMORY)} for the smallest model; free some, or raise "
            "memory-limit where it is set"
        )


def require_known_python() -> None:
    """Raises BuildError for another interpreter than CPython, one without the GIL, and an unknown version."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    oldest, newest = _known_pythons()[0], _known_pythons()[-1]
    if sys.implementation.name != "cpython":
        raise BuildError(
            f"this is {sys.implementation.name}, and wheels are built with CPython {oldest} to {newest} only"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError(
            f"this Python {here} is a free-threaded build ({here}t), for which no wheel is made; "
            f"build with the Python {here} that has the GIL"
        )
    require_known_version(here)


def require_known_version(python: str) -> None:
    """Raises BuildError for a minor version of Python, such as "3.12", that is not known."""
    known = _known_pythons()
    if python not in known:
        raise BuildError(
            f"Python {python} is not known to this hatch-precompile, whose wheels are bytecode of one "
            f"Python; build with Python {known[0]} to {known[-1]}, or upgrade hatch-precompile"
        )


def _known_pythons() -> list[str]:
    return [f"{major}.{minor}" for major, minor in prologue.KNOWN]


def require_known_torch(version: str) -> None:
    """Raises BuildError for a torch that is older, or newer, than those that are known."""
    release = Version(version).release
    oldest, newest = KNOWN_TORCH[0], KNOWN_TORCH[-1]
    if release < Version(oldest).release:
        raise BuildError(
            f"torch {version} is older than {oldest}, the oldest that hatch-precompile knows; "
            f'require a newer one in build-system.requires, as in "torch=={oldest}.0"'
        )
    if release[:2] > Version(newest).release:
        raise BuildError(
            f"torch {version} is newer than {newest}, the newest that this hatch-precompile knows; "
            "upgrade hatch-precompile, or pin an older torch in build-system.requires, "
            f'as in "torch=={newest}.0"'
        )


def _require_standard(compiler: str, torch: str) -> None:
    standard = "c++20" if Version(torch).release >= (2, 13) else "c++17"
    command = [compiler, f"-std={standard}", "-fsyntax-only", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"the C++ compiler {compiler!r} does not run: {error}") from error
    if done.returncode:
        said = done.stderr.partition("\n")[0] or f"it ended with {done.returncode}"
        raise BuildError(
            f"the C++ compiler {compiler!r} does not take -std={standard}, which torch {torch} needs: "
            f"{said}; install a newer one, or set CXX"
        )


def _require_headers() -> None:
    # Those of the environment, and where torch looks, too.
    folders = dict.fromkeys(
        sysconfig.get_path("include", scheme=scheme)
        for scheme in (sysconfig.get_default_scheme(), "posix_prefix")
    )
    if any(Path(folder, "Python.h").exists() for folder in folders):
        return
    here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    raise BuildError(
        f"the headers of Python were not found (there is no {Path(next(iter(folders)), 'Python.h')}); "
        "install them (only the build needs them, the wheel does not): "
        + _package(debian=f"{here}-dev", fedora=f"{here}-devel", conda="python")
    )


def _package(*, debian: str, fedora: str, conda: str) -> str:
    return f"the package is {debian} on Debian and Ubuntu, {fedora} on Fedora, {conda} of conda"
