"""`make programs`: whole programs around models, from the wheel, eagerly, and with torch.compile.

make programs                                       all
make programs PROGRAMS="--programs speech,serving"  some

Writes build/programs.json and programs.md. Exits with 1 if a call of one missed, or its answers are others.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests" / "models")]

from tests.conftest import Site, build_entrypoints, preload  # noqa: E402

PROGRAMS: dict[str, list[dict[str, Any]]] = tomllib.loads((HERE / "programs.toml").read_text())
WAYS = ["eager", "torch.compile", "wheel"]
COLUMNS = {"first_s": "first answer, s", "all_s": "all answers, s", "again_s": "all once more, s"}


def built(name: str, work: Path, say: Any = print) -> Site:
    """The package that a program's wheel would install."""
    return build_entrypoints("uses", PROGRAMS[name], HERE, work, say)


def used(site: Site, name: str, way: str) -> dict[str, Any]:
    """What a process did that ran the program in a way."""
    environment = {} if way == "wheel" else {"HATCH_PRECOMPILE": "off"}
    if way == "torch.compile":  # the one that has a compiler
        environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    targets = [each["target"] for each in PROGRAMS[name]] if way == "torch.compile" else []
    arguments = {"name": name, "compiled": targets, "installed": way == "wheel"}
    answer: dict[str, Any] = site.play("whole_programs.used", environment=environment, **arguments)
    return answer


def agree(ours: Any, theirs: Any) -> bool:
    """Whether answers are the same, numbers within float32's rounding."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=1e-5)
    return bool(ours == theirs)


def main() -> int:
    options = _arguments()
    preload()
    results = {name: _measured(name) for name in options.programs}
    options.out.mkdir(exist_ok=True)
    (options.out / "programs.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "programs.md").write_text(_table(results))
    print(_table(results))
    return int(not all(result["all_hit"] and result["agrees"] for result in results.values()))


def _measured(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        site = built(name, Path(folder) / "work")
        build_s = time.monotonic() - start
        ways = {way: used(site, name, way) for way in WAYS}
    served = ways["wheel"]["served"]
    result = {
        "build_s": round(build_s, 1),
        "served": served,
        "all_hit": all(hits and not misses for hits, misses in served.values()),
        "agrees": agree(ways["wheel"]["outputs"], ways["eager"]["outputs"]),
        "imported": [each for each in ways["wheel"]["imported"] if each not in ways["eager"]["imported"]],
        **{way: {column: round(answer[column], 4) for column in COLUMNS} for way, answer in ways.items()},
    }
    print(f"{name}: {result}", flush=True)
    return result


def _table(results: dict[str, dict[str, Any]]) -> str:
    """A program a row; seconds eagerly, under torch.compile and from the wheel."""
    titles = ["program", "hits", "misses", *(f"{title}: {' / '.join(WAYS)}" for title in COLUMNS.values())]
    rows = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for name, result in results.items():
        hits, misses = map(sum, zip(*result["served"].values(), strict=True))
        seconds = [" / ".join(f"{result[way][column]:.3f}" for way in WAYS) for column in COLUMNS]
        rows.append(f"| {name} | {hits} | {misses} | {' | '.join(seconds)} |")
    return "\n".join(rows) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=lambda text: text.split(","), default=list(PROGRAMS))
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
