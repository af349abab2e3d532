"""`make tools`: what people use on models, on a wheel's model and on the same without compiled code.

make tools                            all that are installed
make tools TOOLS="--tools pickle,export"  those whose names have one of these words

Writes build/tools.json, and prints the table. Exits with 1 if there is a difference that no line explains.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

from tests.conftest import Site, build_entrypoints, preload  # noqa: E402
from tests.tools.uses import TOOLS  # noqa: E402
from tests.truth.agreement import difference  # noqa: E402

ROLES = ("wheel", "eager")
MOMENTS = ("first", "later")
ORDINARY = 6
"""The calls that are made after a tool, each of which an entry serves."""


@dataclass(frozen=True)
class Row:
    """A line of the table. outcome: "same", "as documented", "not installed", or what is wrong."""

    tool: str
    compared: list[str]
    outcome: str
    served: int
    details: list[str]

    @property
    def wrong(self) -> bool:
        return self.outcome not in ("same", "as documented", "not installed")


def built(work: Path, say: Any = print) -> Site:
    """The package that the workshop's wheel would install."""
    entrypoints = tomllib.loads((HERE / "entrypoints.toml").read_text())["entrypoints"]
    return build_entrypoints("workshop", entrypoints, HERE / "src", work, say)


def table(
    site: Site,
    names: list[str],
    work: Path,
    moments: tuple[str, ...] = MOMENTS,
    imported: tuple[str, ...] = (),
) -> list[Row]:
    """Each tool tried: in the first calls that a process makes ("first"), or "later".

    imported: modules that all processes have beside torch.
    """
    there = [name for name in names if all(importlib.util.find_spec(need) for need in TOOLS[name].needs)]
    request = {"tools": there, "moments": moments, "imported": imported}
    started = {role: _started(site, role, request, work / role) for role in ROLES}
    ended = {role: _ended(started[role], work / role) for role in ROLES}
    return [
        _row(name, [(moment, *(ended[role][f"{name} {moment}"] for role in ROLES)) for moment in moments])
        if name in there
        else Row(name, [], "not installed", 0, [f"needs {', '.join(TOOLS[name].needs)}"])
        for name in names
    ]


def _started(site: Site, role: str, request: dict[str, Any], work: Path) -> subprocess.Popen[str]:
    work.mkdir(parents=True)
    file = work / "request.json"
    file.write_text(json.dumps({**request, "out": str(work)}))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(site.directory)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",  # or numpy starts its threads when it is imported
        "HOME": str(work),
        **({} if role == "wheel" else {"HATCH_PRECOMPILE": "off"}),
    }
    with (work / "errors.txt").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.tools.process", str(file)],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def _ended(process: subprocess.Popen[str], work: Path) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError((work / "errors.txt").read_text()[-3000:])
    return {name: _read(each) for name, each in json.loads(said).items()}


def _read(ended: dict[str, Any]) -> dict[str, Any]:
    """What a child found; where it did not come to its end, the last of what it printed."""
    answer = Path(ended["answer"])
    if ended["code"] == 0:
        return {"failed": "", **pickle.loads(answer.read_bytes())}
    return {"failed": f"{ended['code']}: {answer.with_suffix('.txt').read_text()[-1500:]}"}


def _row(name: str, found: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> Row:
    labels: list[str] = []
    details: list[str] = []
    differences = served = 0
    failed = False
    for moment, ours, theirs in found:
        for role, each in (("the wheel", ours), ("eager code", theirs)):
            if each["failed"]:
                failed = True
                details.append(f"{moment}, {role} failed: {each['failed']}")
        if ours["failed"] or theirs["failed"]:
            continue
        served += ours["during"]
        if (ours["after"], theirs["during"] + theirs["after"]) != (ORDINARY, 0):
            failed = True
            details.append(f"{moment}: {ours['after']} of {ORDINARY} ordinary calls were served after it")
        labels += [label for label, _ in theirs["notes"]]
        said = [each for kind in ("notes", "plain") for each in _differences(ours[kind], theirs[kind])]
        differences += len(said)
        details += [f"{moment}: {each}" for each in said]
    known = TOOLS[name].known
    if failed:
        outcome = "failed"
    elif differences:
        outcome = "as documented" if known else "differs"
    else:
        outcome = "said to differ, and does not" if known else "same"
    return Row(name, list(dict.fromkeys(labels)), outcome, served, details)


def _differences(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Beside eager code, the first of each label."""
    if [label for label, _ in ours] != [label for label, _ in theirs]:
        return [f"notes {[label for label, _ in ours]}, not {[label for label, _ in theirs]}"]
    found: dict[str, str] = {}
    for (label, mine), (_, other) in zip(ours, theirs, strict=True):
        said = difference(mine, other)
        if said:
            found.setdefault(label, f"{label}{said}")
    return list(found.values())


def text(rows: list[Row]) -> str:
    """The table; below it what is behind each outcome that is not "same"."""
    lines = ["| tool | compared | outcome | calls served |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.tool} | {', '.join(row.compared)} | {row.outcome} | {row.served} |" for row in rows]
    for row in rows:
        if row.outcome != "same":
            known = TOOLS[row.tool].known
            lines += ["", f"{row.tool}: {row.outcome}{f' ({known})' if known else ''}"]
            lines += [f"  {each}" for each in row.details]
    return "\n".join(lines)


def main() -> int:
    options = _arguments()
    names = [name for name in TOOLS if any(word in name for word in options.tools)]
    preload()
    with tempfile.TemporaryDirectory() as folder:
        site = Site(options.site) if options.site else built(Path(folder) / "built")
        rows = table(site, names, Path(folder) / "tried", options.moments)
    options.out.mkdir(exist_ok=True)
    (options.out / "tools.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(text(rows))
    return int(any(row.wrong for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", type=lambda text: text.split(","), default=[""], help="words of names")
    parser.add_argument("--moments", type=lambda text: tuple(text.split(",")), default=MOMENTS)
    parser.add_argument("--site", type=Path, help="where the workshop is installed already")
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
