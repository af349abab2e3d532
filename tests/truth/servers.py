"""The forking servers of one worker, and what it asks them: one case in one role."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.truth.building import REPOSITORY
from tests.truth.cases import Case
from tests.truth.catalogue import PACKAGE, SOURCES

__all__ = ["Answer", "Servers"]

COMPILERS = ("torch._dynamo", "torch._inductor.compile_fx")


@dataclass(frozen=True)
class Answer:
    """How a process ended ("exit", "crash" or "hang"), what it reported, the end of what it printed."""

    ended: str
    code: int
    report: dict[str, Any] | None
    log: str

    @property
    def notes(self) -> list[tuple[str, Any]]:
        return self.report["notes"] if self.report else []


class Servers:
    """Servers with the environments that were asked for last. `sites`: where programs were built."""

    def __init__(self, directory: Path, sites: Path, cache: Path) -> None:
        self.directory = directory
        self.sites = sites
        self.cache = cache
        self._running: dict[tuple[Any, ...], subprocess.Popen[str]] = {}
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)

    def ask(self, case: Case, role: str, *, limit: float | None = None, perturb: int = 0) -> Answer:
        """Run a case in a process of its own. perturb: the byte that fresh memory is filled with there."""
        warm = (
            COMPILERS if role == "compile" else COMPILERS[:1] if case.change.warm or case.program.warm else ()
        )
        server = self._server(case.environment, warm)
        answer, log = self.directory / "answer", self.directory / "log"
        answer.unlink(missing_ok=True)
        request = {
            "role": role,
            "program": {
                "name": case.program.name,
                "module": case.program.module,
                "target": case.program.target,
                "instance": case.program.instance,
                "samples": case.program.samples,
                "mode": case.program.mode,
            },
            "change": case.change.name,
            "parameter": case.parameter,
            "site": str(self._laid_out(case)),
            "answer": str(answer),
            "log": str(log),
            "perturb": perturb,
            "limit": limit or (240.0 if role == "compile" else case.change.limit),
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        line = server.stdout.readline()
        if not line:
            raise RuntimeError((self.directory / "server.txt").read_text()[-3000:])
        said = json.loads(line)
        report = pickle.loads(answer.read_bytes()) if said["ended"] == "exit" and answer.exists() else None
        return Answer(said["ended"], said["code"], report, log.read_text(errors="replace")[-3000:])

    def close(self) -> None:
        for server in self._running.values():
            server.kill()
            server.wait()
        self._running.clear()

    def _server(self, environment: tuple[tuple[str, str], ...], warm: tuple[str, ...]) -> Any:
        key = (environment, warm)
        if key not in self._running:
            if any(other[0] != environment for other in self._running):
                self.close()
            self._running[key] = self._started(dict(environment), warm)
        return self._running[key]

    def _started(self, environment: dict[str, str], warm: tuple[str, ...]) -> subprocess.Popen[str]:
        base = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": "1",  # or numpy starts its threads when it is imported
            "HOME": str(self.directory),
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        }
        with (self.directory / "server.txt").open("a") as errors:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.truth.zygote", *warm],
                env={**base, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.directory,
            )
        assert server.stdout is not None
        if not server.stdout.readline():
            raise RuntimeError((self.directory / "server.txt").read_text()[-3000:])
        return server

    def _laid_out(self, case: Case) -> Path:
        """The package and its dependency, with the case's files in place of those they were built from."""
        site = self.directory / "site"
        shutil.rmtree(site, ignore_errors=True)
        built = self.sites / case.program.name / "site" / PACKAGE
        for name in (PACKAGE, "parts"):
            (site / name).mkdir(parents=True)
            for source in (SOURCES / name).glob("*.py"):
                place = f"{name}/{source.name}"
                if place in case.files:
                    (site / place).write_text(case.files[place])
                elif place != f"{PACKAGE}/__init__.py":
                    (site / place).symlink_to(source)
        (site / PACKAGE / "__init__.py").symlink_to(built / "__init__.py")
        (site / PACKAGE / "_precompiled").symlink_to(built / "_precompiled")
        return site
