"""Who multiplies a linear layer fastest: torch's libraries, inductor's micro-GEMMs, or a wheel's functions.

Run with the Python of an environment that has the plugin, torch, hatchling and build:

    python benchmarks/gemm.py [--runs 3]

Each way in its own process, in turns, on one thread; weights are fixed, so that each may prepack them.
Microseconds of a call, the least of all runs. Writes build/gemm.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from calls import table
from models import ROOT, BenchModel
from processes import run_timed
from projects import Project, unverified

PACKAGE = "bench_gemm"
CHILD = Path(__file__).resolve().with_name("gemm_child.py")
MODEL = BenchModel(PACKAGE, f"{PACKAGE}.model:Layer", None)
WAYS = ("eager", "freezing", "micro-GEMM", "wheel")
LAYERS = ("square", "up", "down", "square_bfloat16", "up_bfloat16", "down_bfloat16")

ENTRYPOINT = """
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "{package}.model:Layer"
name = "{layer}"
instance = "{package}.model:{layer}"
samples = "{package}.samples:{layer}"
weights = "fixed"
"""


@dataclass(frozen=True)
class Layers(Project):
    """The project of all layers."""

    def _pyproject(self) -> str:
        entrypoints = [ENTRYPOINT.format(package=PACKAGE, layer=layer) for layer in LAYERS]
        return unverified(PACKAGE, "native") + "".join(entrypoints)


def main() -> None:
    options = _arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    folder = options.out / "bench" / "gemm"
    project = Layers(MODEL, folder)
    if not options.built:
        project.write()
        project.install(project.build()[0])
    found: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    for _ in range(options.runs):
        for way in WAYS:
            environment = {
                **{key: value for key, value in os.environ.items() if key != "HATCH_PRECOMPILE"},
                "PYTHONPATH": str(project.installed),
                "OMP_NUM_THREADS": "1",
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache" / way),
                **({"HATCH_PRECOMPILE": "off"} if way != "wheel" else {}),
            }
            for case, value in run_timed([sys.executable, CHILD, way], env=environment).fields.items():
                found[way][case] = min(value, found[way].get(case, value))
    options.out.mkdir(exist_ok=True)
    (options.out / "gemm.json").write_text(json.dumps({"microseconds": found}, indent=1) + "\n")
    print(table(found, "microseconds"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="processes of each way (default: 3)")
    parser.add_argument("--built", action="store_true", help="with the wheel that is there")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="where results go (default: build)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
