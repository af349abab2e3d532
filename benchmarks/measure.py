"""Runs every way of a model, alternating, each run in a process of its own, and takes medians."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import BenchModel
from processes import RunError, run_timed, run_to_log
from projects import Project
from ways import BEFORE, WAYS

__all__ = ["Bench", "dispatch_cost", "import_cost", "medians", "threads_cost"]

CHILD = Path(__file__).resolve().with_name("child.py")

Fields = dict[str, Any]

IMPORT = """\
import importlib, sys, time, torch
before, package, module = sys.argv[1:]
if before: importlib.import_module(before)
start = time.perf_counter()
importlib.import_module(package)
importlib.import_module(module)
print("first output", flush=True)
print('{"ms": %r}' % ((time.perf_counter() - start) * 1e3))
"""

DISPATCH = """\
import json, timeit, torch
from bench_many.model import increment
from bench_many.samples import samples
calls = [args for args, _ in samples()]
with torch.no_grad():
    for kind, x in calls:
        increment(kind, x)
    print("first output", flush=True)
    seconds = {
        str(1 << n): min(timeit.repeat(lambda: increment(*calls[(1 << n) - 1]), number=500, repeat=7)) / 500
        for n in range(9)
    }
print(json.dumps({place: value * 1e6 for place, value in seconds.items()}))
"""

THREADS = """\
import json, os, statistics, timeit, torch
from types import FunctionType
# By itself torch takes no more threads than there are cores.
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
from bench_threads.model import normalize
from bench_threads.samples import samples
threads = torch.get_num_threads()
plain = normalize._precompiled_original
# With code of its own: the wheel's entries are found under torch.compile, too.
copy = FunctionType(plain.__code__.replace(co_name="fixed"), plain.__globals__)
fixed = torch.compile(copy, options={"cpp.threads": threads, "cpp.dynamic_threads": False})
((x, y),) = samples()
with torch.no_grad():
    torch.testing.assert_close(normalize(x, y), fixed(x, y))
    print("first output", flush=True)
    ms = {"any": [], "fixed": []}
    for _ in range(15):
        for name, call in (("any", normalize), ("fixed", fixed)):
            ms[name].append(min(timeit.repeat(lambda: call(x, y), number=1, repeat=10)) * 1e3)
served = normalize.__globals__["__name__"].partition(".")[0]
hits = __import__(served)._precompiled.status()["entrypoints"]["bench_threads"]["hits"]
assert hits == 151, hits
result = {f"{name}_ms": statistics.median(values) for name, values in ms.items()}
print(json.dumps(result | {"threads": threads, "ratio": result["any_ms"] / result["fixed_ms"]}))
"""


def medians(runs: Sequence[Mapping[str, Any]]) -> Fields:
    """The median of each number over the runs, and the least `least_ms`; of anything else, the last run's."""
    merged: Fields = {}
    for name, last in runs[-1].items():
        number = isinstance(last, int | float) and not isinstance(last, bool)
        choose = min if name == "least_ms" else statistics.median
        merged[name] = choose(run[name] for run in runs) if number else last
    return merged


@dataclass(frozen=True)
class Bench:
    """One model, measured in ``folder``."""

    model: BenchModel
    folder: Path
    say: Callable[[str], None]
    before: Path | None = None
    """The folder of the plugin that BEFORE is built with."""

    def project(self, way: str) -> Project:
        """The project whose wheel a way installs, or whose source it imports."""
        settings = WAYS[way].settings
        if settings is None:
            return Project(self.model, self.folder)
        plugin = self.before if way == BEFORE else None
        return Project(self.model, self.folder / way, settings, plugin)

    def measure(self, ways: Iterable[str], runs: int, heavy_runs: int) -> dict[str, Fields]:
        """Per way its fields, or {"error": the last line of it}."""
        self.project("eager").write()
        results: dict[str, Fields] = {}
        prepared: dict[str, float | RunError] = {}
        collected: dict[str, list[Fields]] = {way: [] for way in ways}
        for way in collected:
            try:
                results[way] = self._prepared(way, prepared)
            except RunError as failure:
                results[way] = self._failure(way, failure)
        with contextlib.suppress(RunError):
            # Not kept: it reads torch from disk for all that follow.
            self._run("eager")
        for turn in range(runs):
            for way, kept in collected.items():
                if "error" in results[way] or (WAYS[way].heavy and turn >= heavy_runs):
                    continue
                try:
                    kept.append(self._run(way))
                    self.say(f"{way} {turn + 1}: {kept[-1]['process_s']:.2f} s to first output")
                except RunError as failure:
                    results[way] |= self._failure(way, failure)
        for way, kept in collected.items():
            if "error" not in results[way]:
                results[way] |= medians(kept) | {"runs": len(kept)}
        return results

    def _prepared(self, way: str, prepared: dict[str, float | RunError]) -> Fields:
        """Prepare a way once; ways that share a preparation share its outcome."""
        owner = WAYS[way].prepared_by or way
        is_wheel = WAYS[owner].settings is not None
        if not is_wheel and WAYS[owner].prepare is None:
            return {}
        if owner not in prepared:
            self.say(f"{way}: preparing")
            try:
                prepared[owner] = self._build_wheel(owner) if is_wheel else self._prepare(owner)
            except RunError as failure:
                prepared[owner] = failure
        outcome = prepared[owner]
        if isinstance(outcome, RunError):
            raise outcome
        return {"build_s": outcome}

    def _failure(self, way: str, failure: RunError) -> Fields:
        self.say(f"{way}: failed: {failure}")
        return {"error": str(failure)}

    def _build_wheel(self, way: str) -> float:
        project = self.project(way)
        project.write()
        wheel, seconds = project.build()
        project.install(wheel)
        return seconds

    def _prepare(self, way: str) -> float:
        work = self.folder / way
        shutil.rmtree(work, ignore_errors=True)
        (work / "cache").mkdir(parents=True)
        environment = self._environment("eager", work / "cache")
        return run_to_log(self._command("prepare", way), work / "prepare.log", env=environment)

    def _run(self, way: str) -> Fields:
        """One run in a process of its own, with the caches the way is measured with. Raises RunError."""
        kept = self.folder / (WAYS[way].prepared_by or way) / "cache"
        fresh = self.folder / "fresh-cache"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        if WAYS[way].cache == "dynamo" and (kept / "dynamo").is_dir():
            shutil.copytree(kept / "dynamo", fresh / "dynamo")
        environment = self._environment(way, kept if WAYS[way].cache == "kept" else fresh)
        if not WAYS[way].compiler:
            environment |= {"PATH": str(fresh), "CXX": "/nonexistent/c++"}
        outcome = run_timed(self._command("run", way), env=environment)
        return {"process_s": outcome.process_s, **outcome.fields}

    def _command(self, phase: str, way: str) -> list[str | Path]:
        work = self.folder / (WAYS[way].prepared_by or way)
        model = self.model
        assert model.instance is not None
        return [sys.executable, CHILD, phase, way, model.target_module, model.instance, model.samples, work]

    def _environment(self, way: str, cache: Path) -> dict[str, str]:
        project = self.project(way)
        package = project.source if WAYS[way].settings is None else project.installed
        inherited = {name: value for name, value in os.environ.items() if name != "HATCH_PRECOMPILE"}
        return inherited | {"PYTHONPATH": str(package), "TORCHINDUCTOR_CACHE_DIR": str(cache)}


def import_cost(project: Project, runs: int) -> Fields:
    """Milliseconds to import the package once torch is there, and the target's module if that is elsewhere.

    ``wheel_ms``: from its wheel; ``off_ms``: the same with HATCH_PRECOMPILE=off; ``source_ms``: from plain
    source; ``added_ms``: the first less the last. Raises RunError.
    """
    model = project.model
    in_dependency = model.target_module.partition(".")[0] != model.package
    before, module = (model.target_module, model.package) if in_dependency else ("", model.target_module)
    command = [sys.executable, "-c", IMPORT, before, model.package, module]
    ways = {
        "wheel_ms": {"PYTHONPATH": str(project.installed)},
        "off_ms": {"PYTHONPATH": str(project.installed), "HATCH_PRECOMPILE": "off"},
        "source_ms": {"PYTHONPATH": str(project.source)},
    }
    inherited = {name: value for name, value in os.environ.items() if name != "HATCH_PRECOMPILE"}
    seen: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(runs + 1):
        for way, changes in ways.items():
            milliseconds = run_timed(command, env=inherited | changes).fields["ms"]
            if turn:  # In the first one the files come from disk.
                seen[way].append(milliseconds)
    cost = {way: statistics.median(values) for way, values in seen.items()}
    return {**cost, "added_ms": cost["wheel_ms"] - cost["source_ms"], "runs": runs}


def dispatch_cost(project: Project) -> Fields:
    """Microseconds of a call, by the place of the entry that serves it. Raises RunError."""
    command = [sys.executable, "-c", DISPATCH]
    return run_timed(command, env=os.environ | {"PYTHONPATH": str(project.installed)}).fields


def threads_cost(project: Project, counts: Sequence[int]) -> Fields:
    """By number of threads: milliseconds of a call with the wheel's kernels, which take whatever number there
    is, and with kernels that torch.compile made for that very number; and their ratio. Raises RunError.
    """
    command = [sys.executable, "-c", THREADS]
    found = {}
    for count in counts:
        cache = project.folder / "threads-cache" / str(count)
        environment = {"PYTHONPATH": str(project.installed), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        found[str(count)] = run_timed(
            command, env=os.environ | environment | {"OMP_NUM_THREADS": str(count)}
        ).fields
    return found
