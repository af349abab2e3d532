"""What the slow tests share: one zoo of entrypoints, built once, and fresh processes that import it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from tests.support.headers import compiled_headers, remove_headers, share_headers

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
ZOO = TESTS / "zoo"
MARK = "::result::"

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    if share_headers():
        config.add_cleanup(remove_headers)


@dataclass(frozen=True)
class Finished:
    """A process that ended: what it passed to `probe.result`, and what it printed."""

    returncode: int
    result: Any
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Site:
    """A directory with installed packages; `play` and `run` start fresh processes that import from it.

    Nothing is in those processes' environment but where to import from: no home, no compiler, an
    empty PATH. `probe` (tests/support/probe.py) is importable in them. timeout: of each, in seconds.
    """

    directory: Path
    timeout: float = 300

    def run(
        self, code: str, *, ok: bool = True, cwd: Path | None = None, stdin: Any = None, **env: str
    ) -> Finished:
        """Run a snippet; with `ok`, a failure of it is a failure of the test."""
        environment = {
            "PYTHONPATH": os.pathsep.join([str(self.directory), str(TESTS / "support")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": str(TESTS / "no-such-directory"),
            **env,
        }
        process = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=cwd or self.directory,
            input=json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        if ok:
            assert process.returncode == 0, process.stderr
        lines = [line for line in process.stdout.splitlines() if line.startswith(MARK)]
        result = json.loads(lines[-1].removeprefix(MARK)) if lines else None
        return Finished(process.returncode, result, process.stdout, process.stderr)

    def play(self, scenario: str, *, environment: dict[str, str] | None = None, **arguments: Any) -> Any:
        """What a scenario answers, which is a function of tests/scenarios: "module.function"."""
        return self.process(scenario, environment=environment, **arguments).result

    def play_all(self, module: str, *scenarios: str, environment: dict[str, str] | None = None) -> Any:
        """What each of these scenarios of a module answers: all in one process, in this order."""
        code = f"import probe; probe.play_all({module!r}, {scenarios!r})"
        return self.run(code, **_with_scenarios(self, environment)).result

    def process(
        self,
        scenario: str,
        *,
        ok: bool = True,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        **arguments: Any,
    ) -> Finished:
        """The process that a scenario was played in, for those that fail or print something."""
        module, _, function = scenario.rpartition(".")
        code = f"import probe; probe.play({module!r}, {function!r})"
        return self.run(code, ok=ok, cwd=cwd, stdin=arguments, **_with_scenarios(self, environment))

    def copy(self, destination: Path) -> Site:
        shutil.copytree(self.directory, destination)
        return Site(destination)


def _with_scenarios(site: Site, environment: dict[str, str] | None) -> dict[str, str]:
    places = [str(site.directory), str(TESTS / "support"), str(TESTS / "scenarios")]
    return {"PYTHONPATH": os.pathsep.join(places), **(environment or {})}


def build(project: Path, sources: Path, work: Path, report: Callable[[str], None] = print) -> Site:
    """Run a project's build, without Hatch, and lay the package out as its wheel would."""
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]
    return _build(table["precompile"], project.name, sources, work, report)


def build_entrypoints(
    package: str,
    entrypoints: list[dict[str, Any]],
    sources: Path,
    work: Path,
    report: Callable[[str], None] = print,
    headers: Path | None = None,
    **table: Any,
) -> Site:
    """The same for a package without a project of its own; `table`: more of the hook's keys."""
    return _build({"entrypoints": entrypoints, **table}, package, sources, work, report, headers)


def _build(
    table: dict[str, Any],
    package: str,
    sources: Path,
    work: Path,
    report: Callable[[str], None],
    headers: Path | None = None,
) -> Site:
    from hatch_precompile.build import build_bundle
    from hatch_precompile.config import load

    work.mkdir(parents=True)
    preload()
    config = load(table, default_package=package)
    headers = headers or compiled_headers()
    built = build_bundle(
        config, source_roots=[sources], work=work, report=report, root=sources, headers=headers
    )
    # Files, where the build has links to the sources: tests change what they import.
    laid_out = built.directory.parent.parent
    site = work / "installed"
    shutil.copytree(laid_out, site, ignore=shutil.ignore_patterns("__pycache__"))
    return Site(site)


@functools.cache
def preload(*libraries: str) -> contextlib.ExitStack:
    """Let all builds of this process start their children as the entrypoints of one build do, and with these
    modules imported, too."""
    from hatch_precompile.build import children_preloaded

    servers = contextlib.ExitStack()
    servers.enter_context(children_preloaded(*libraries))
    atexit.register(servers.close)
    return servers


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory that `make` fills, once for all the workers of pytest-xdist."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    directory, made = shared / name, shared / f"{name}.made"
    with FileLock(shared / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(directory, ignore_errors=True)  # what another worker failed at
            directory.mkdir()
            make(directory)
            made.touch()
    return directory


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The zoo (tests/zoo), built and verified; shared, so read-only."""
    place = made_once(tmp_path_factory, "zoo", lambda place: build(ZOO, ZOO / "src", place / "work"))
    return Site(place / "work" / "installed")


@pytest.fixture
def zoo_copy(zoo: Site, tmp_path: Path) -> Iterator[Site]:
    """The zoo for one test to change."""
    yield zoo.copy(tmp_path / "site")
