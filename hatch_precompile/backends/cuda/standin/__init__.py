"""What stands in for a GPU where there is none: a library that is preloaded into the processes that trace and
compile (standin.c), and never into the build's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hatch_precompile.backends.cuda.cards import Card
from hatch_precompile.backends.cuda.headers import include_folders
from hatch_precompile.errors import BuildError

__all__ = [
    "Launch",
    "build",
    "counted",
    "environment_with",
    "is_preloaded",
    "launches_recorded",
    "make_unknown",
    "settle",
]

_CARD = "HATCH_PRECOMPILE_CARD"
_PRELOAD = "LD_PRELOAD"
_FLAGS = ("-x", "c", "-std=gnu11", "-O1", "-shared", "-fPIC", "-s", "-pthread", "-Wl,-soname,libcuda.so.1")


def build(folder: Path) -> Path:
    """The library, compiled into a folder, where one is that was compiled before. Raises BuildError."""
    library = folder / "libcuda.so.1"
    if any(each.isspace() or each == ":" for each in str(library)):
        raise BuildError(
            f"a library cannot be preloaded from {folder}, because of a blank or a colon in its name; "
            "set TMPDIR to another folder"
        )
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{each}" for each in include_folders()]
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, compiled = Path(made, "standin.c"), Path(made, "standin.so")
        source.write_text(files(__package__).joinpath("standin.c").read_text("utf-8"), "utf-8")
        command = [os.environ.get("CXX", "g++"), *_FLAGS, *includes, str(source), "-o", str(compiled)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
            raise BuildError(f"what stands in for a GPU does not compile: {said}")
        compiled.replace(library)  # captures are side by side
    return library


def environment_with(library: Path, card: Card) -> dict[str, str]:
    """The variables of a process that starts with that card in the place of any GPU."""
    numbers = (
        *(card.major, card.minor, card.multiprocessors, card.threads),
        *(card.shared, card.shared_by_all, card.memory, card.l2_cache),
    )
    others = os.environ.get(_PRELOAD, "")
    return {
        _PRELOAD: f"{library}:{others}" if others else str(library),
        _CARD: " ".join([*map(str, numbers), card.name]),
    }


def is_preloaded() -> bool:
    """Whether this process has started with it."""
    return _CARD in os.environ


def settle() -> None:
    """Take the library out of LD_PRELOAD, for compilers that this process starts; called before any."""
    kept = [each for each in os.environ.get(_PRELOAD, "").split(":") if Path(each).name != "libcuda.so.1"]
    os.environ.pop(_PRELOAD, None)
    if any(kept):
        os.environ[_PRELOAD] = ":".join(kept)


def counted() -> None:
    """Have torch count the GPUs that are stood in for. It may ask a library for the real ones, or a variable
    that hides them. For a process of its own, which stays with that."""
    import torch

    torch.cuda._device_count_nvml = lambda: -1  # as where that library is not there
    torch.cuda._cached_device_count = None


def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def make_unknown(address: int, size: int) -> None:
    """So many bytes of a device's memory are a kernel's result from now on: reading them is an error."""
    _library().precompile_unknown(ctypes.c_void_p(address), ctypes.c_size_t(size))


@dataclass(frozen=True)
class Launch:
    """A kernel, its grid, threads of a block, bytes of shared memory, the index of the device, and the
    address of the stream."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    device: int
    stream: int


class _Record(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char * 128),
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    )


@contextlib.contextmanager
def launches_recorded() -> Iterator[list[Launch]]:
    """Launches of our libraries are noted while the block runs, and are in the list after it. Nothing is
    computed: what a kernel would write stays as it is."""
    library, found = _library(), list[Launch]()
    library.precompile_record(1)
    try:
        yield found
    finally:
        first = ctypes.POINTER(_Record)()
        count = library.precompile_launches(ctypes.byref(first))
        for each in first[:count]:
            grid = (each.grid[0], each.grid[1], each.grid[2])
            where = (each.threads, each.shared, each.device, each.stream or 0)
            found.append(Launch(each.kernel.decode(), grid, *where))
        library.precompile_record(0)
