"""What a large matrix would take: a simulation of `hatch-precompile build --matrix`, which builds nothing.

    python benchmarks/scale.py

It prints the table of benchmarks/README.md. A cell is one task: an environment, the captures of all
entrypoints on the worker's cores, then their verification. Tasks wait for workers; their wheels come over one
link to one machine, which merges and uploads. With shards a cell's entrypoints are split over several tasks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["Outcome", "Setting", "cell_mb", "entrypoints_in", "merged_mb", "simulate", "table"]

# The matrix.
ENTRYPOINTS = 200
PYTHONS = 3
TORCHES = 3
VARIANTS = 3

# An entrypoint, in seconds of one core: a capture for one variant, from the quickest to the slowest of small
# models. The example's and the README's take longer: 25 and 31 s.
CAPTURE_S = (10.0, 30.0)
# What of it is done once for all variants: tracing. BERT-base takes 24.6 s cold, 7.6 s with a warm cache.
TRACED = 0.3
# A verification, which runs for each variant, over a capture for one. Seen in builds of the benchmarks.
VERIFIED = 1 / 3

# An entrypoint's bundle for one variant, in MB, from the smallest to the largest; it has one entry.
BUNDLE_MB = (0.1, 2.0)
# What of it is libraries, which each variant has of its own: 34 and 60 % in the wheels of two benchmarks.
LIBRARIES = 0.5
# What zip leaves of it: 21 and 32 % of the same bundles.
DEFLATED = 0.3
# What other Pythons of the same torch have, too, and a merge stores once: readable files. An estimate.
EQUAL = 0.1

# A worker, in seconds: an environment with torch from wheels that are cached (60 to 120 measured), the import
# of torch, and, once for all, the source distribution (an estimate).
ENVIRONMENT_S = 90.0
IMPORT_S = 3.0
SOURCE_S = 10.0

# The machine that merges, one core: MB a second unzipped and compared (measured), and zipped (measured).
READ_MB_S = 200.0
ZIP_MB_S = 38.0
# Its link to the workers, 1 Gbit/s with overhead, and to an index; both assumed.
LINK_MB_S = 100.0
UPLOAD_MB_S = 40.0

# Money for an hour of one core while a task has its worker. A GitHub-hosted Linux runner of 4 cores costs
# 0.012 USD a minute (in 2026). Workers that wait are free there, and are not elsewhere.
PRICE = 0.18
# In MB. A file on PyPI, where nobody has asked for more.
FILE_LIMIT_MB = 100.0


@dataclass(frozen=True)
class Setting:
    """Where the matrix is built. shards: tasks for each cell."""

    workers: int
    cores: int = 4
    shards: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came of it. busy: workers that had a task; parts: the seconds of the longest way from the start to
    the end, by what they were spent on."""

    tasks: int
    busy: int
    core_hours: float
    parts: dict[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def cost(self) -> float:
        return self.core_hours * PRICE

    @property
    def longest(self) -> str:
        return max(self.parts, key=self.parts.__getitem__)


SETTINGS = (
    Setting(1),
    Setting(10),
    Setting(100),
    Setting(10, cores=32),
    Setting(10, shards=11),
    Setting(100, shards=11),
)


def simulate(setting: Setting) -> Outcome:
    """From the source distribution to the upload; nothing fails on the way."""
    shards = [
        _task(range(shard, ENTRYPOINTS, setting.shards), setting.cores) for shard in range(setting.shards)
    ]
    tasks = shards * (PYTHONS * TORCHES)
    free = [(SOURCE_S, worker) for worker in range(setting.workers)]
    done: list[list[dict[str, float]]] = [[] for _ in range(setting.workers)]
    arrivals = []
    for parts in tasks:
        begun, worker = heapq.heappop(free)
        ended = begun + sum(parts.values())
        heapq.heappush(free, (ended, worker))
        done[worker].append(parts)
        arrivals.append((ended, worker))
    last, slowest = max(arrivals)
    mb = cell_mb() * PYTHONS * TORCHES / len(tasks)
    link = 0.0
    for ended, _ in sorted(arrivals):
        link = max(link, ended) + mb / LINK_MB_S
    whole = {"source": SOURCE_S, **_added(done[slowest]), "transfer": link - last, **_merge()}
    at_work = sum(sum(parts.values()) for parts in tasks) + SOURCE_S + whole["merge"] + whole["upload"]
    busy = sum(bool(parts) for parts in done)
    return Outcome(len(tasks), busy, at_work * setting.cores / 3600, whole)


def _task(entrypoints: Sequence[int], cores: int) -> dict[str, float]:
    """The seconds of one task. Verification begins when all captures have ended."""
    compiled = TRACED + (1 - TRACED) * VARIANTS
    return {
        "environment": ENVIRONMENT_S + IMPORT_S,
        "capture": _side_by_side((_capture_s(each) * compiled for each in entrypoints), cores),
        "verification": _side_by_side(
            (_capture_s(each) * VERIFIED for each in entrypoints for _ in range(VARIANTS)), cores
        ),
        "zip": sum(_bundle_mb(each) for each in entrypoints) / ZIP_MB_S,
    }


def _side_by_side(seconds: Iterable[float], cores: int) -> float:
    """When the last has ended, if each is begun as soon as there is a core for it."""
    ends = [0.0] * cores
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _added(tasks: Iterable[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for parts in tasks:
        for name, seconds in parts.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _merge() -> dict[str, float]:
    """Every file is read to be compared, and again to be written."""
    content = _content_mb() * PYTHONS * TORCHES
    kept = content * _kept()
    return {
        "merge": content / READ_MB_S + kept / READ_MB_S + kept / ZIP_MB_S,
        "upload": merged_mb() / UPLOAD_MB_S,
    }


def _kept() -> float:
    """What a merge stores of the content of all cells."""
    return 1 - EQUAL * (PYTHONS - 1) / PYTHONS


def cell_mb() -> float:
    """The wheel of one cell, in MB. Sources and runtime, 0.1 MB, do not count."""
    return _content_mb() * DEFLATED


def merged_mb() -> float:
    """The wheel of all cells, in MB."""
    return cell_mb() * PYTHONS * TORCHES * _kept()


def entrypoints_in(wheel_mb: float) -> int:
    """How many a wheel of this size may have to stay a file that PyPI takes."""
    return int(FILE_LIMIT_MB / wheel_mb * ENTRYPOINTS)


@cache
def _content_mb() -> float:
    return sum(_bundle_mb(each) for each in range(ENTRYPOINTS))


def _capture_s(entrypoint: int) -> float:
    least, most = CAPTURE_S
    return least + (most - least) * _spread(entrypoint, math.sqrt(5))


def _bundle_mb(entrypoint: int) -> float:
    """Uncompressed, for all variants. Small ones are as many as large ones on a logarithmic scale."""
    least, most = BUNDLE_MB
    one: float = least * (most / least) ** _spread(entrypoint, math.sqrt(2))
    return one * (1 - LIBRARIES + LIBRARIES * VARIANTS)


def _spread(entrypoint: int, step: float) -> float:
    """Even over 0 to 1, in an order that has no pattern: the same on every machine, unlike a random one."""
    return (entrypoint + 0.5) * step % 1


def table() -> str:
    """One row for each setting."""
    rows = [
        [
            "workers",
            "cores each",
            "tasks",
            "wall time",
            "core-hours",
            "cost, USD",
            "wheel, MB",
            "longest part",
        ]
    ]
    for setting in SETTINGS:
        outcome = simulate(setting)
        share = outcome.parts[outcome.longest] / outcome.seconds
        workers = f"{setting.workers}" + (f" ({outcome.busy} busy)" if outcome.busy < setting.workers else "")
        shards = f" ({setting.shards} shards a cell)" if setting.shards > 1 else ""
        rows.append(
            [
                workers,
                f"{setting.cores}",
                f"{outcome.tasks}{shards}",
                _in_time(outcome.seconds),
                f"{outcome.core_hours:.0f}",
                f"{outcome.cost:.2f}",
                f"{merged_mb():.0f}",
                f"{outcome.longest}, {share:.0%}",
            ]
        )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _in_time(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


if __name__ == "__main__":
    print(table())
