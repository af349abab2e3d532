"""A real wheel: built by the plugin's own wheel through `python -m build`. Shared, so read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, TESTS, made_once

TORCH = version("torch").partition("+")[0]

# 2024-05-15; what is built carries this time.
EPOCH = "1715731200"


@dataclass(frozen=True)
class Built:
    wheel: Path
    log: str
    plugin: Path
    project: Path

    def names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(name)

    def metadata(self, name: str) -> Message:
        return Parser().parsestr(self.read(f"kiosk-1.0.dist-info/{name}").decode())


def run(*command: str | Path, **environment: str) -> str:
    process = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


def build(project: Path, plugin: Path, out: Path, *arguments: str) -> tuple[Path, str]:
    build = [sys.executable, "-m", "build", "--no-isolation", *arguments, "--outdir", str(out), str(project)]
    log = run(*build, PYTHONPATH=str(plugin), SOURCE_DATE_EPOCH=EPOCH)
    (artifact,) = [*out.glob("*.whl"), *out.glob("*.tar.gz")]
    return artifact, log


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    work = made_once(tmp_path_factory, "kiosk", _build_kiosk)
    (wheel,) = (work / "dist").glob("*.whl")
    return Built(wheel, (work / "log").read_text(), work / "plugin", work / "project")


def _build_kiosk(work: Path) -> None:
    own, _ = build(REPOSITORY, REPOSITORY, work / "own", "--wheel")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", work / "plugin", own)
    project = work / "project"
    shutil.copytree(TESTS / "kiosk", project, ignore=shutil.ignore_patterns("__pycache__"))
    configuration = project / "pyproject.toml"  # which names one torch; the suite runs with others, too
    configuration.write_text(configuration.read_text().replace("torch==2.13.0", f"torch=={TORCH}"))
    _, log = build(project, work / "plugin", work / "dist", "--wheel")
    (work / "log").write_text(log)


@dataclass(frozen=True)
class Environment:
    """A virtual environment that sees this one's packages, and has the wheel installed."""

    python: Path
    site: Path


@pytest.fixture(scope="session")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    home = made_once(tmp_path_factory, "venv", lambda home: _make_environment(home, built.wheel))
    (site,) = home.glob("lib/python*/site-packages")
    return Environment(home / "bin" / "python", site)


def _make_environment(home: Path, wheel: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", home)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(home / "bin" / "python", "-m", "pip", "install", "--no-deps", "--no-index", wheel)
