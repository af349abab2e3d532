"""`make strangers`: packages that nobody here wrote, and small programs that do what others of them do.

make strangers                                     all
make strangers STRANGERS="--alone"                 those that need no package from the index
make strangers STRANGERS="--cases with_e3nn"       some

outcomes.toml has the table. Each case is a module of tests/strangers/cases, which becomes a project: its
wheel is built with verification, installed, and called in a fresh process without a PATH, beside eager code
in another. Writes build/strangers.json. Exits with 1 if an outcome is not the expected one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

MARK = "::result::"
SERVED = "served"

PROJECT = """\
[build-system]
requires = ["hatchling", "hatch-precompile", "torch"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1"

[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]

[tool.hatch.build.hooks.precompile]
on-error = "warn"
"""


@dataclass(frozen=True)
class Entrypoint:
    """A row of the table. outcome: "served", or how the sentence begins that the build says.

    table: the entrypoint's keys; calls: what makes the arguments that it is called with, if not its samples.
    """

    name: str
    outcome: str
    table: dict[str, Any]
    calls: str = ""


@dataclass(frozen=True)
class Case:
    """A project. needs: what is installed for it, pinned; modules: what is imported of that; build: more keys
    of the hook's table."""

    name: str
    needs: tuple[str, ...]
    modules: tuple[str, ...]
    entrypoints: tuple[Entrypoint, ...]
    build: dict[str, Any] = field(default_factory=dict)


@dataclass
class Result:
    """What came of an entrypoint. `found` is as `expected`, or what is wrong."""

    entrypoint: str
    expected: str
    found: str
    difference: float | None = None
    build_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def fine(self) -> bool:
        return self.found.startswith(self.expected)


def read_cases(file: Path = HERE / "outcomes.toml") -> dict[str, Case]:
    """The table."""
    cases = {}
    for name, row in tomllib.loads(file.read_text()).items():
        entrypoints = []
        for given in row["entrypoints"]:
            table = {"name": given["target"].rpartition(":")[2].rpartition(".")[2].lower(), **given}
            outcome, calls = table.pop("outcome", SERVED), table.pop("calls", "")
            if "workload" not in table:
                table.setdefault("samples", f"{name}:samples")
            entrypoints.append(Entrypoint(table["name"], outcome, table, calls))
        needs, modules = tuple(row.get("needs", ())), tuple(row.get("modules", ()))
        cases[name] = Case(name, needs, modules, tuple(entrypoints), row.get("build", {}))
    return cases


def write_project(case: Case, place: Path) -> None:
    """The case as a project of its own."""
    package = place / "src" / case.name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text((HERE / "cases" / f"{case.name}.py").read_text())
    text = PROJECT.format(name=case.name) + _keys(case.build)
    for entrypoint in case.entrypoints:
        text += "\n[[tool.hatch.build.hooks.precompile.entrypoints]]\n"
        text += _keys(entrypoint.table)
    (place / "pyproject.toml").write_text(text)


def _keys(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def run_case(case: Case, work: Path) -> list[Result]:
    """A case built, installed and called; what came of each of its entrypoints."""
    write_project(case, work)
    start = time.monotonic()
    command = ["-m", "hatch_precompile", "build", "--no-isolation", str(work), "--json"]
    built = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    build_s = round(time.monotonic() - start, 1)
    (work / "said.txt").write_text(built.stderr)
    site = work / "site"
    wheels = [str(wheel) for wheel in (work / "dist").glob("*.whl")]
    if wheels:
        install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(site),
            *wheels,
        ]
        subprocess.run([sys.executable, *install], check=True)
    results = []
    for entrypoint in case.entrypoints:
        left_out = refusal(built.stderr, entrypoint.name)
        if left_out or not wheels:
            found = left_out or f"the build failed: {built.stderr.strip()[-1500:]}"
            results.append(
                Result(f"{case.name}:{entrypoint.name}", entrypoint.outcome, found, build_s=build_s)
            )
        else:
            results.append(_called(case, entrypoint, site, work, build_s))
    return results


def refusal(said: str, name: str) -> str:
    """What the build says of an entrypoint that it leaves out."""
    for start in (f"entrypoint {name} is left out of the wheel: ", f"Error: entrypoint {name}"):
        if start in said:
            words = re.split(r"\n(?! )", said.partition(start)[2])[0].strip()
            return words.removeprefix(f"entrypoint {name}: ").lstrip(": ")
    return ""


def _called(case: Case, entrypoint: Entrypoint, site: Path, work: Path, build_s: float) -> Result:
    import torch

    result = Result(f"{case.name}:{entrypoint.name}", entrypoint.outcome, SERVED, build_s=build_s)
    answers = {}
    for mode in ("quiet", "off"):
        out = work / f"{entrypoint.name}.{mode}.pt"
        found = _play(case, entrypoint, site, out, mode)
        if isinstance(found, str):
            result.found = f"under {mode}: {found}"
            return result
        answers[mode] = torch.load(out, weights_only=True)
        result.facts[mode] = found
    judge(result, result.facts["quiet"], *answers.values())
    return result


def judge(result: Result, counted: dict[str, int], ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Say in the result whether each call was a hit, and how far the answers are from eager code's."""
    import torch

    if counted["hits"] < counted["calls"] or counted["misses"]:
        result.found = f"{counted['hits']} hits and {counted['misses']} misses in {counted['calls']} calls"
        return
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    except AssertionError as error:
        result.found = f"another answer than eager code's: {error}"
    result.difference = largest(ours, theirs)


def largest(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of two numbers in the same place; where both are nan there is none."""
    largest = 0.0
    for one, other in zip(ours, theirs, strict=False):
        if one.shape == other.shape and one.numel():
            apart = (one.cdouble() - other.cdouble()).abs()
            largest = max(largest, float(apart[~apart.isnan()].max()) if (~apart.isnan()).any() else 0.0)
    return largest


def _play(case: Case, entrypoint: Entrypoint, site: Path, out: Path, mode: str) -> Any:
    """What the process says, or the last of what it printed where it failed."""
    places = [site, ROOT / "tests/support", ROOT / "tests/scenarios"]
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": str(out.parent / "no-such-directory"),
        "HOME": str(out.parent),
        "HATCH_PRECOMPILE": mode,
    }
    table = entrypoint.table
    request = {"package": case.name, "table": table, "calls": entrypoint.calls, "out": str(out)}
    process = subprocess.run(
        [sys.executable, "-c", "import probe; probe.play('strangers', 'called')"],
        env=environment,
        cwd=out.parent,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in process.stdout.splitlines() if line.startswith(MARK)]
    if process.returncode or not lines:
        return f"{process.returncode}: {process.stderr.strip()[-1500:]}"
    return json.loads(lines[-1].removeprefix(MARK))


def missing(case: Case) -> list[str]:
    """The modules of a case that are not installed."""
    return [module for module in case.modules if importlib.util.find_spec(module) is None]


def main() -> int:
    options = _arguments()
    cases = read_cases(options.table)
    if options.needs:
        print(" ".join(sorted({need for case in cases.values() for need in case.needs})))
        return 0
    if unknown := sorted(set(options.cases) - set(cases)):
        sys.exit(f"no such case: {', '.join(unknown)}")
    results: list[Result] = []
    for name in options.cases or cases:
        case = cases[name]
        if options.alone and case.needs:
            continue
        if lacking := missing(case):
            results.append(Result(name, SERVED, f"not installed: {', '.join(lacking)}"))
        elif options.work:
            results += run_case(case, options.work / name)
        else:
            with tempfile.TemporaryDirectory() as work:
                results += run_case(case, Path(work) / name)
        for result in [each for each in results if each.entrypoint.partition(":")[0] == name]:
            print(_line(result), flush=True)
    options.out.mkdir(exist_ok=True)
    (options.out / "strangers.json").write_text(
        json.dumps([asdict(each) for each in results], indent=1) + "\n"
    )
    return int(not all(result.fine for result in results))


def _line(result: Result) -> str:
    difference = "" if result.difference is None else f", difference {result.difference:.2g}"
    words = "as expected" if result.fine else f"NOT AS EXPECTED ({result.expected})"
    return f"{result.entrypoint}: {words}: {result.found}{difference}, built in {result.build_s} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=lambda text: text.split(","), default=[])
    parser.add_argument("--alone", action="store_true", help="no case that needs a package from the index")
    parser.add_argument("--needs", action="store_true", help="print what all cases need, and end")
    parser.add_argument("--work", type=Path, help="a folder that keeps projects, wheels and what builds said")
    parser.add_argument("--table", type=Path, default=HERE / "outcomes.toml")
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
