"""The two wheels of the demonstration, and the clean environment the second one is installed in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from processes import run_to_log

__all__ = ["TORCH", "build_wheel", "builds_use", "clean_environment"]

TORCH = "torch==2.13.0"


def build_wheel(
    project: Path, dist: Path, log: Path, env: Mapping[str, str] | None = None
) -> tuple[Path, float]:
    """Build the project's wheel, isolated, into ``dist``; the wheel, and seconds. Raises RunError."""
    fresh = dist.parent / "fresh-dist"
    shutil.rmtree(fresh, ignore_errors=True)
    seconds = run_to_log([sys.executable, "-m", "build", "--wheel", "--outdir", fresh, project], log, env=env)
    built = next(fresh.glob("*.whl"))
    dist.mkdir(parents=True, exist_ok=True)
    for older in dist.glob(f"{built.name.partition('-')[0]}-*.whl"):
        older.unlink()
    wheel = Path(shutil.move(built, dist / built.name))
    fresh.rmdir()
    return wheel, seconds


def builds_use(plugin: Path, folder: Path) -> dict[str, str]:
    """Environment variables with which isolated builds get this very wheel of the plugin, and that torch.

    pip finds the wheel by PIP_FIND_LINKS. The constraint keeps it from a release on an index, and from
    another torch when it adds what the project requires at run time.
    """
    constraints = folder / "build-constraints.txt"
    constraints.write_text(f"hatch-precompile @ {plugin.as_uri()}\n{TORCH}\n")
    return dict(
        os.environ,
        PIP_FIND_LINKS=_appended("PIP_FIND_LINKS", plugin.parent),
        PIP_CONSTRAINT=_appended("PIP_CONSTRAINT", constraints),
    )


def clean_environment(folder: Path, wheel: Path, log: Path) -> Path:
    """An environment with that wheel and what it requires; returns its Python. Raises RunError.

    A second call keeps what the wheel requires and puts the wheel itself in anew.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        run_to_log([sys.executable, "-m", "venv", folder], log)
    # Not --force-reinstall: that would take torch out and put it in again as well.
    name = wheel.name.partition("-")[0]
    subprocess.run(
        [python, "-m", "pip", "uninstall", "--quiet", "--yes", name], check=False, capture_output=True
    )
    run_to_log([python, "-m", "pip", "install", "--find-links", wheel.parent, TORCH, wheel], log)
    return python


def _appended(variable: str, path: Path) -> str:
    """pip takes several values of a variable with spaces between them."""
    return " ".join(filter(None, [os.environ.get(variable), str(path)]))
