"""`make soak`: what a process grows by in a long life, and a busy server, beside eager code.

make soak                                         half an hour or more
make soak SOAK="--parts weights,server --share 0.1"   a tenth of two parts

Writes build/soak.json, and prints two tables. Exits with 1 if answers differ.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

from tests.conftest import Site, preload  # noqa: E402
from tests.tools.run import ROLES, built  # noqa: E402
from tests.tools.serving import REQUESTS, served  # noqa: E402
from tests.tools.soaking import warm  # noqa: E402

COUNTS = {"calls": 500_000, "instances": 5_000, "weights": 2_000, "imports": 500}
GROWTH = ("private_kb", "rss_kb", "objects", "files", "regions")


def soaked(site: Site, part: str, count: int, collector: str, role: str) -> dict[str, Any]:
    """One part in a process of its own, and by how much that has grown."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.tools.soaking", part, str(count), collector],
        env=environment(site, role),
        cwd=site.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise RuntimeError(f"{part}, {role}: {finished.returncode}\n{finished.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    first, *_, last = found["had"]
    return {**found, "grown": {name: last[name] - first[name] for name in GROWTH}}


def environment(site: Site, role: str) -> dict[str, str]:
    """Of a process in a role; with one arena, so that memory that was given back counts as such."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(site.directory)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "MALLOC_ARENA_MAX": "1",
        "HATCH_PRECOMPILE": "quiet" if role == "wheel" else "off",
    }


def text(result: dict[str, Any]) -> str:
    """A part a row, with the collector on and off: what the wheel's process grew by / eager code's."""
    titles = ["part", "steps", "collector", "private kB", "resident kB", "objects", "files", "regions"]
    titles += ["bytes a step", "hits, misses", "seconds"]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for row in result["parts"]:
        ways = [row[role] for role in ROLES]
        steps = row["count"] - warm(row["count"])
        cells = [row["part"], f"{steps:,}", row["collector"]]
        cells += [" / ".join(f"{way['grown'][name]:+,}" for way in ways) for name in GROWTH]
        cells += [" / ".join(f"{way['grown']['private_kb'] * 1024 / steps:.1f}" for way in ways)]
        cells += [f"{ways[0]['hits']:,}, {ways[0]['misses']:,}"]
        cells += [" / ".join(f"{way['seconds']:.0f}" for way in ways)]
        lines.append(f"| {' | '.join(cells)} |")
    if result["server"]:
        lines += ["", "| server | requests | wrong answers | median, ms | 99 %, ms | requests a second |"]
        lines.append(f"|{' --- |' * 6}")
        for role, each in result["server"].items():
            numbers = [each["requests"], each["wrong"], each["median_ms"], each["p99_ms"], each["per_second"]]
            lines.append(f"| {role} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def agrees(result: dict[str, Any]) -> bool:
    """Whether each part's answers were eager code's, within float32's rounding of so many sums."""
    parts = [[row[role]["total"] for role in ROLES] for row in result["parts"]]
    summed = all(math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-2) for ours, theirs in parts)
    return summed and not any(each["wrong"] for each in result["server"].values())


def main() -> int:
    options = _arguments()
    preload()
    result: dict[str, Any] = {"parts": [], "server": {}}
    with tempfile.TemporaryDirectory() as folder:
        site = Site(options.site) if options.site else built(Path(folder) / "built")
        for part in [part for part in COUNTS if part in options.parts]:
            for collector in ("on", "off"):
                count = max(10, int(COUNTS[part] * options.share))
                ways = {role: soaked(site, part, count, collector, role) for role in ROLES}
                result["parts"].append({"part": part, "count": count, "collector": collector, **ways})
                print(text({**result, "parts": result["parts"][-1:]}), flush=True)
        if "server" in options.parts:
            requests = max(80, int(REQUESTS * options.share))
            result["server"] = served({role: environment(site, role) for role in ROLES}, requests)
    options.out.mkdir(exist_ok=True)
    (options.out / "soak.json").write_text(json.dumps(result, indent=1) + "\n")
    print(text(result))
    return int(not agrees(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = [*COUNTS, "server"]
    parser.add_argument("--parts", type=lambda text: text.split(","), default=parts, help=", ".join(parts))
    parser.add_argument("--share", type=float, default=1.0, help="of the steps and requests")
    parser.add_argument("--site", type=Path, help="where the workshop is installed already")
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
