"""The gallery in its true sizes: builds each model, calls it in fresh processes, writes a table.

    python tests/conformance/run.py [--size small] [--models gpt2,vit] [--out build]

Writes conformance.json and conformance.md. Exits with 1 if a model did not build, hit and agree.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from gallery.cases import CASES  # noqa: E402

from hatch_precompile.errors import BuildError  # noqa: E402
from tests.conftest import build_entrypoints  # noqa: E402

COLUMNS = {
    "frames": "frames",
    "entries": "entries",
    "graphs": "graphs",
    "guards": "guards",
    "rebound": "rebound",
    "dropped": "dropped",
    "native": "native graphs",
    "wrapped": "wrapped graphs",
    "build_s": "build s",
    "install_ms": "install ms",
    "after_model_s": "after model s",
    "eager_after_model_s": "eager after model s",
    "hit": "hit",
}


def main() -> int:
    options = _arguments()
    results: dict[str, dict[str, Any]] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        print(f"{name}: building", flush=True)
        try:
            results[name] = _measure(name, options.size)
        except (BuildError, AssertionError) as error:  # of the build, or of a process that calls the model
            results[name] = {"error": str(error)}
        print(f"{name}: {results[name]}", flush=True)
        (options.out / "conformance.json").write_text(json.dumps({"models": results}, indent=1) + "\n")
        (options.out / "conformance.md").write_text(_table(results))
    print(_table(results))
    return int(any("error" in each or not each["hit"] or each["dropped"] for each in results.values()))


def _measure(name: str, size: str) -> dict[str, Any]:
    case = CASES[name]
    table = {
        "target": case.target,
        "name": name,
        "instance": f"gallery.{size}:{name}",
        "samples": f"gallery.{size}:{name}_samples",
    }
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        site = build_entrypoints("gallery", [table], HERE, Path(folder) / "work")
        build_s = time.monotonic() - start
        site = dataclasses.replace(site, timeout=1800)  # some are large
        arguments = {"name": name, "size": size, "target": case.target.partition(":")[0]}
        scenario = "conformance.timed_calls"
        eager = site.play(scenario, environment={"HATCH_PRECOMPILE": "off"}, **arguments)
        ours = site.play(scenario, **arguments)
        manifest = json.loads((site.directory / "gallery/_precompiled/bundle/manifest.json").read_text())
    entries = [entry for frame in manifest["frames"] for entry in frame["entries"]]
    wrapped = sum("wrapping" in graph for graph in manifest["graphs"])
    return {
        "frames": len(manifest["frames"]),
        "entries": len(entries),
        "graphs": len(manifest["graphs"]),
        "guards": sum(entry["checks"] for entry in entries),
        "rebound": sum(entry["rebound"] for entry in entries),
        "dropped": sum(entry["dropped"] for entry in entries),
        "native": len(manifest["graphs"]) - wrapped,
        "wrapped": wrapped,
        "build_s": round(build_s, 1),
        "install_ms": round(ours["install_ms"] - eager["install_ms"], 2),
        "after_model_s": round(ours["first_s"], 3),
        "eager_after_model_s": round(eager["first_s"], 3),
        "largest_difference": ours["largest_difference"],
        "imported": [module for module in ours["imported"] if module not in eager["imported"]],
        "hit": ours["hits"] == ours["samples"] and ours["misses"] == 0,
    }


def _table(results: dict[str, dict[str, Any]]) -> str:
    rows = ["| model | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, result in results.items():
        if "error" in result:
            rows.append(f"| {name} | failed: {str(result['error']).strip().splitlines()[-1]} |")
        else:
            rows.append(f"| {name} | " + " | ".join(str(result[key]) for key in COLUMNS) + " |")
    return "\n".join(rows) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("small", "large"), default="large")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
