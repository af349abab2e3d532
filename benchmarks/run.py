"""The benchmarks: this project against the other ways to ship a compiled model.

Run with the Python of an environment that has the plugin, torch, transformers, hatchling and build:

    python benchmarks/run.py [--models mlp,minilm,bert] [--ways eager,cold,...] [--runs 5] [--cores 1]

The ways that are not torch's also need onnxruntime, onnxscript and openvino.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from budgets import judge
from measure import Bench, dispatch_cost, import_cost, threads_cost
from models import MANY, MODELS, ROOT, THREADS, BenchModel
from processes import RunError
from projects import Project, install_revision
from report import ahead_table, table, verdict_table, write
from ways import BEFORE, WAYS

NEEDED = ("build", "hatchling", "hatch_precompile", "torch", "transformers")
FOR_OTHERS = ("onnxruntime", "onnxscript", "openvino")


def main() -> None:
    options = parse_arguments()
    out: Path = options.out
    needed = (*NEEDED, *(FOR_OTHERS if any(WAYS[way].without_torch for way in options.ways) else ()))
    if missing := [name for name in needed if find_spec(name) is None]:
        sys.exit(f"run.py: {sys.executable} lacks {', '.join(missing)}; see benchmarks/README.md")
    # Of this process, and so of all that it starts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    if options.before:
        options.ways.append(BEFORE)
        install_revision(options.before, out / "bench" / "before")
    models: dict[str, dict[str, Any]] = {}
    (out / "bench.json").unlink(missing_ok=True)
    for name in options.models:
        models[name] = measure_model(name, MODELS[name], options)
        write(out, models, list(judge(models)))  # After each: a run that is cut short leaves what it has.
        print(f"\n{name}\n{table(models[name])}\n", flush=True)
    if options.many:
        models["many"] = {"wheel": measure_many(out / "bench" / "many", options.import_runs)}
    if options.threads:
        models["threads"] = {"wheel": measure_threads(out / "bench" / "threads", options.threads)}
    verdicts = list(judge(models))
    write(out, models, verdicts)
    print(verdict_table(verdicts), ahead_table(models), sep="\n\n")
    print(f"\nWritten: {out / 'bench.json'} and {out / 'bench.md'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=chosen(MODELS), default=list(MODELS), help=", ".join(MODELS))
    ways = {name: way for name, way in WAYS.items() if name != BEFORE}
    parser.add_argument("--ways", type=chosen(ways), default=list(ways), help=", ".join(ways))
    parser.add_argument("--before", metavar="REVISION", help="also wheels that another revision builds")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="where results go (default: build)")
    parser.add_argument("--runs", type=int, default=5, help="runs per way (default: 5)")
    parser.add_argument(
        "--heavy-runs", type=int, default=2, help="of a way that takes many seconds (default: 2)"
    )
    parser.add_argument("--import-runs", type=int, default=9, help="processes per import (default: 9)")
    parser.add_argument("--cores", type=int, help="on so many cores only (default: all)")
    parser.add_argument("--many", action="store_true", help="also import a wheel with 256 entries: minutes")
    parser.add_argument(
        "--threads",
        type=lambda text: [int(count) for count in text.split(",")],
        default=[],
        metavar="1,2,4,64",
        help="also compare the kernels with some made for each of these numbers of threads",
    )
    return parser.parse_args()


def chosen(table: Mapping[str, object]) -> Callable[[str], list[str]]:
    """An argument type: a comma-separated choice of a table's names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in table:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(table)}")
        return names

    return parse


def measure_model(name: str, model: BenchModel, options: argparse.Namespace) -> dict[str, Any]:
    """Per way its fields or its error; the wheel's have the cost of its import under "import"."""
    folder = options.out / "bench" / name
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:6.0f} s] {name}: {text}", file=sys.stderr, flush=True)

    bench = Bench(model, folder, say, options.out / "bench" / "before")
    ways = bench.measure(options.ways, options.runs, options.heavy_runs)
    if "wheel" in ways and "error" not in ways["wheel"]:
        say("wheel: import")
        ways["wheel"]["import"] = import_cost(bench.project("wheel"), options.import_runs)
    return ways


def measure_many(folder: Path, runs: int) -> dict[str, Any]:
    """Build time, import cost and the cost of a call of one entrypoint with 256 entries."""
    project = Project(MANY, folder)
    try:
        project.write()
        wheel, seconds = project.build()
        project.install(wheel)
        return {
            "build_s": seconds,
            "import": import_cost(project, runs),
            "call_us_by_place": dispatch_cost(project),
        }
    except RunError as failure:
        return {"error": str(failure)}


def measure_threads(folder: Path, counts: list[int]) -> dict[str, Any]:
    """One wheel, built here, in processes with each number of threads."""
    project = Project(THREADS, folder)
    try:
        project.write()
        wheel, seconds = project.build()
        project.install(wheel)
        return {"build_s": seconds, "threads": threads_cost(project, counts)}
    except RunError as failure:
        return {"error": str(failure)}


if __name__ == "__main__":
    main()
