"""What a call costs around its kernels: hits and misses, static and dynamic sizes, by an entry's place.

Run with the Python of an environment that has the plugin, torch, transformers, hatchling and build:

    python benchmarks/calls.py [--runs 5] [--before REVISION] [--compiled] [--instructions]

Each way in its own process, in turns, on one thread. Microseconds are the least of all runs; --instructions
counts by valgrind instead, which other work on the machine does not change. Writes build/calls.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from models import ROOT, BenchModel
from processes import run_timed
from projects import Project, install_revision, unverified

PACKAGE = "bench_calls"
CHILD = Path(__file__).resolve().with_name("calls_child.py")
MODEL = BenchModel(PACKAGE, f"{PACKAGE}.static:MLP", None)

ENTRYPOINT = """
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "{package}.{module}:{target}"
name = "{module}-{target}"
samples = "{package}.samples:{samples}"
mode = "no_grad"
"""
# Target, its samples, and the dimensions that are dynamic.
TARGETS = (
    ("MLP", "mlp", ("x.0",)),
    ("pointwise", "pointwise", ("x.0", "y.0")),
    ("DistilBert", "distilbert", ("ids.0", "ids.1")),
    ("Layers", "layers", ()),
    ("increment", "kinds", ()),
)


@dataclass(frozen=True)
class Calls(Project):
    """The project of all programs, each as it is and with dynamic sizes."""

    def write(self) -> None:
        super().write()
        package = self.source / PACKAGE
        for name in ("static", "dynamic"):
            shutil.copyfile(package / "model.py", package / f"{name}.py")

    def _pyproject(self) -> str:
        text = unverified(PACKAGE, "x86-64-v3")  # valgrind knows no newer processor
        for target, samples, dimensions in TARGETS:
            for module in ("static", "dynamic") if dimensions else ("static",):
                text += ENTRYPOINT.format(package=PACKAGE, module=module, target=target, samples=samples)
                if module == "dynamic":
                    name = {"0": "rows", "1": "columns"}
                    for each in dimensions:
                        text += f'dynamic-shapes.{each} = "{name[each[-1]]}"\n'
        return text


def main() -> None:
    options = _arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    folder = options.out / "bench" / "calls"
    ways = {"wheel": Calls(MODEL, folder / "wheel")}
    if options.before:
        install_revision(options.before, folder / "before" / "plugin")
        ways["before"] = Calls(MODEL, folder / "before", plugin=folder / "before" / "plugin")
    if not options.built:
        for project in ways.values():
            project.write()
            project.install(project.build()[0])
    places = {name: (project.installed, {}) for name, project in ways.items()}
    places["eager"] = (ways["wheel"].installed, {"HATCH_PRECOMPILE": "off"})
    if options.compiled:
        places["torch.compile"] = (ways["wheel"].installed, {"HATCH_PRECOMPILE": "off"})
    found: dict[str, dict[str, float]] = {name: {} for name in places}
    for _ in range(1 if options.instructions else options.runs):
        for name, (place, more) in places.items():
            environment = {
                **{key: value for key, value in os.environ.items() if key != "HATCH_PRECOMPILE"},
                "PYTHONPATH": str(place),
                "OMP_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
                **more,
            }
            seen = counted(environment) if options.instructions else timed(name, environment)
            for case, value in seen.items():
                found[name][case] = min(value, found[name].get(case, value))
    kind = "instructions" if options.instructions else "microseconds"
    options.out.mkdir(exist_ok=True)
    (options.out / "calls.json").write_text(json.dumps({kind: found}, indent=1) + "\n")
    print(table(found, kind))


def timed(way: str, environment: dict[str, str]) -> dict[str, float]:
    """Microseconds of a call, case by case."""
    return run_timed([sys.executable, CHILD, way, "5000"], env=environment).fields


COUNTED = """\
#include <Python.h>
#include <valgrind/callgrind.h>
void counted(PyObject *call, long times, const char *name) {
    CALLGRIND_START_INSTRUMENTATION;
    Py_XDECREF(PyObject_CallNoArgs(call));
    CALLGRIND_ZERO_STATS;
    for (long i = 0; i < times; i++) Py_XDECREF(PyObject_CallNoArgs(call));
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
"""
COUNTED_CALLS = 20


def counted(environment: dict[str, str]) -> dict[str, float]:
    """Instructions of a call, case by case."""
    with tempfile.TemporaryDirectory() as place:
        source, library = Path(place, "counted.c"), Path(place, "counted.so")
        source.write_text(COUNTED)
        include = sysconfig.get_path("include")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{include}", source, "-o", library], check=True)
        valgrind = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={place}/out", "--instr-atstart=no")
        run_timed([*valgrind, sys.executable, CHILD, library, str(COUNTED_CALLS)], env=environment)
        found = {}
        for dump in sorted(Path(place).glob("out.*"), key=lambda path: int(path.suffix[1:])):
            text = dump.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
            if name is not None and total is not None:
                found[name[1]] = int(total[1]) / COUNTED_CALLS
    return found


def table(found: dict[str, dict[str, float]], kind: str) -> str:
    """A case a row; of each way what a call costs, and its ratio to eager code."""
    ways = list(found)
    lines = [f"| {kind} a call | {' | '.join(ways)} | wheel / eager |", f"|{' --- |' * (len(ways) + 2)}"]
    for case in found["eager"]:
        values = [f"{found[way][case]:,.1f}" if case in found[way] else "" for way in ways]
        ratio = f"{found['wheel'][case] / found['eager'][case]:.2f}"
        lines.append(f"| {case} | {' | '.join(values)} | {ratio} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="processes of each way (default: 5)")
    parser.add_argument("--before", metavar="REVISION", help="also a wheel that another revision builds")
    parser.add_argument("--compiled", action="store_true", help="also torch.compile")
    parser.add_argument("--instructions", action="store_true", help="count them; valgrind is needed")
    parser.add_argument("--built", action="store_true", help="with the wheels that are there")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="where results go (default: build)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
