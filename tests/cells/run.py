"""The whole suite with each Python and torch: `python tests/cells/run.py --needs "torch==2.13.0 pytest ..."`.

Each cell has an environment of its own, one at a time, which is removed after its run. What came of a run of
the whole suite is written to tests/cells/results.json, and from there to docs/support.md. A cell whose result
is of this commit is not run again. Needs nothing but Python, which makes the environments; uv, if the Python
that runs this has it, fills them in a third of the time.

With --newest and --tests, a part of the suite in the newest cell whose Python is here, of which nothing is
written.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.cells.page import CELLS, RESULTS, Cell, Result, read_results, write_page, write_results  # noqa: E402

__all__ = ["counted", "interpreter", "main", "needs_of", "newest_cell", "requirements"]

BUILD = REPOSITORY / "build/cells"


def interpreter(version: str) -> str | None:
    """A Python of this minor version: the one that runs here, PYTHON_3_12, python3.12, or one of pyenv's."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [
        os.environ.get(f"PYTHON_{version.replace('.', '_')}"),
        shutil.which(f"python{version}"),
        *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python"))),
    ]
    return next((each for each in found if each and _is(each, version)), None)


def _is(python: str, version: str) -> bool:
    """pyenv has a command for each of its versions, which works for those that are chosen."""
    own = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-c", own], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version


def newest_cell() -> tuple[Cell, str] | None:
    """The newest beside the first one, with a Python of it that is here; None where there is no Python."""
    for cell in reversed(CELLS[1:]):
        python = interpreter(cell.python)
        if python is not None:
            return cell, python
    return None


def requirements(text: str) -> list[str]:
    """Those that the Makefile lists for a shell, some in quotes."""
    return shlex.split(text)


def needs_of(cell: Cell, needs: Sequence[str]) -> list[str]:
    """What the suite needs, with the torch of this cell."""
    return [f"torch=={cell.torch}" if each.startswith("torch==") else each for each in needs]


def environment(cell: Cell, python: str, needs: Sequence[str]) -> Path:
    """A new one. Raises CalledProcessError where something cannot be installed."""
    path = REPOSITORY / f".venv-cell-{cell.name}"
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run([python, "-m", "venv", path], check=True)
    print(
        f"{cell.name}: installing torch {cell.torch}, which may be 3 GB with its libraries for GPUs",
        flush=True,
    )
    wanted = ["--editable", f"{REPOSITORY}[cli]", *needs_of(cell, needs)]
    subprocess.run([*_installer(path / "bin/python"), *wanted], check=True)
    return path


def _installer(python: Path) -> list[str | Path]:
    if importlib.util.find_spec("uv") is None:
        return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # As pip, it takes the best of all indexes, of which pip's variable names some.
    others = os.environ.get("PIP_EXTRA_INDEX_URL", "").split()
    indexes = [part for other in others for part in ("--extra-index-url", other)]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-cache", "--python", python]
    return [*uv, "--index-strategy", "unsafe-best-match", *indexes]


def counted(report: Path) -> tuple[Counter[str], Counter[str]]:
    """Of a report in JUnit's form: how many tests passed, failed, were skipped or expected to fail; and of
    those that were skipped, how many for which reason."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for test in ET.parse(report).iter("testcase"):
        skipped = test.find("skipped")
        if test.find("failure") is not None or test.find("error") is not None:
            outcomes["failed"] += 1
        elif skipped is None:
            outcomes["passed"] += 1
        elif skipped.get("type") == "pytest.xfail":
            outcomes["expected to fail"] += 1
        else:
            outcomes["skipped"] += 1
            reasons[skipped.get("message") or ""] += 1
    return outcomes, reasons


def run(cell: Cell, python: str, needs: Sequence[str], commit: str, *, workers: int, keep: bool) -> Result:
    """The suite in a cell. What it prints goes to build/cells/."""
    BUILD.mkdir(parents=True, exist_ok=True)
    where = environment(cell, python, needs)
    report = BUILD / f"{cell.name}.xml"
    report.unlink(missing_ok=True)
    command = [where / "bin/python", "-m", "pytest", f"--numprocesses={workers}", "--dist=loadfile"]
    with (BUILD / f"{cell.name}.log").open("w") as log:
        subprocess.run(
            [*command, f"--junitxml={report}", "tests"],
            cwd=REPOSITORY,
            env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},  # all of it
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not report.exists():
        raise SystemExit(
            f"{cell.name}: pytest ended without a report; {BUILD / cell.name}.log has what it said"
        )
    outcomes, reasons = counted(report)
    if not keep:
        shutil.rmtree(where)
    return Result(
        cell=cell.name,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        passed=outcomes["passed"],
        failed=outcomes["failed"],
        skipped=dict(sorted(reasons.items())),
        expected_to_fail=outcomes["expected to fail"],
    )


def run_part(needs: Sequence[str], tests: Sequence[str], *, workers: int, keep: bool) -> int:
    """A part of the suite in the newest cell, printed as it runs. Returns pytest's exit status, or 1 with a
    sentence where there is no Python for another cell than the first, or what it needs is not to be had."""
    found = newest_cell()
    if found is None:
        print(
            f"there is no Python here for another cell than {CELLS[0].name}; install one, or name it in the "
            f"environment, as in PYTHON_{CELLS[-1].python.replace('.', '_')}=/path/to/python"
        )
        return 1
    cell, python = found
    try:
        where = environment(cell, python, needs)
    except subprocess.CalledProcessError as error:
        print(f"{cell.name}: there is no environment for it: {shlex.join(map(str, error.cmd))} failed")
        return 1
    command = [where / "bin/python", "-m", "pytest", f"--numprocesses={workers}", "--dist=loadfile"]
    done = subprocess.run([*command, "-p", "no:cacheprovider", *tests], cwd=REPOSITORY, check=False)
    if not keep:
        shutil.rmtree(where)
    return done.returncode


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--needs", required=True, help="what pip has to install, among it torch==VERSION")
    parser.add_argument(
        "--cells", default="", help=f"with commas, of {', '.join(each.name for each in CELLS)}"
    )
    parser.add_argument("--again", action="store_true", help="also those whose result is of this commit")
    parser.add_argument("--keep", action="store_true", help="leave the environments, of several GB each")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--newest", action="store_true", help="only the newest cell whose Python is here")
    parser.add_argument("--tests", default="", help="with --newest: a part of the suite")
    parser.add_argument("--page", action="store_true", help="only write docs/support.md")
    asked = parser.parse_args()
    if asked.newest:
        tests = asked.tests.split() or ["tests"]
        return run_part(requirements(asked.needs), tests, workers=asked.workers, keep=asked.keep)
    results = read_results()
    if asked.page:
        write_page(results)
        return 0
    wanted = [name for name in asked.cells.split(",") if name]
    unknown = set(wanted) - {cell.name for cell in CELLS}
    if unknown:
        parser.error(f"no such cell: {', '.join(sorted(unknown))}")
    if _git("status", "--porcelain", "--", ":!docs/support.md", f":!{RESULTS.relative_to(REPOSITORY)}"):
        parser.error("there are changes that are in no commit: a result would be of none")
    commit, failed = _git("rev-parse", "--short=10", "HEAD"), False
    for cell in CELLS:
        if wanted and cell.name not in wanted:
            continue
        before = results.get(cell.name)
        if before is not None and before.commit == commit and not asked.again:
            print(f"{cell.name}: run before")
            continue
        python = interpreter(cell.python)
        if python is None:
            variable = f"PYTHON_{cell.python.replace('.', '_')}"
            print(f"{cell.name}: there is no python{cell.python}; {variable} may name one")
            failed = True
            continue
        result = run(cell, python, requirements(asked.needs), commit, workers=asked.workers, keep=asked.keep)
        skipped = sum(result.skipped.values())
        print(f"{cell.name}: {result.passed} passed, {result.failed} failed, {skipped} skipped")
        results[cell.name] = result
        write_results(results)
        write_page(results)
        failed = failed or bool(result.failed)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
