"""How much memory the children of a build may take, and who takes it.

The kernel ends what it likes when a machine has no memory left. A build ends its own child before that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["free_memory", "limit_data", "memory_of"]

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """The bytes that processes started here may still take: what the machine has free, or less where a
    control group, of either version, has less left. None where that is not known."""
    known = [free for free in (_free_of_machine(), *_free_of_groups()) if free is not None]
    return min(known, default=None)


def _free_of_machine() -> int | None:
    for line in _lines(PROC / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _free_of_groups() -> Iterator[int | None]:
    """What is left of each limit that this process is under: its groups', and those of the groups above."""
    for line in _lines(PROC / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = CGROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = root / path.lstrip("/")
        # In a container the path may be the host's, which is not there; the root is the container's own then.
        for place in (folder, *folder.parents):
            if place.is_relative_to(root):
                yield _left(place, *names)


def _left(group: Path, limit: str, usage: str, files: str) -> int | None:
    try:
        free = int((group / limit).read_text()) - int((group / usage).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
    # What the kernel keeps of files it gives back.
    kept = dict(line.split() for line in _lines(group / "memory.stat"))
    return max(free + int(kept.get(files, 0)), 0)


def memory_of(sessions: Iterable[int]) -> dict[int, int]:
    """The bytes that all processes of each session have of their own: not what they share with files."""
    found = dict.fromkeys(sessions, 0)
    for process in PROC.iterdir() if found else ():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            session = int(fields[3])
            if session in found:
                found[session] += _own(process / "status")
    return found


def _own(status: Path) -> int:
    return sum(
        int(line.split()[1]) * 1024
        for line in status.read_text().splitlines()
        if line.startswith(("RssAnon:", "RssShmem:"))
    )


def limit_data(size: int) -> None:
    """Let this process, and what it starts, have no more data than `size` bytes each: an allocation that
    goes beyond fails. Without effect where the system has no such limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
