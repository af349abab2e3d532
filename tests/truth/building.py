"""Builds one program into a site of its own, once.

A site has the package as a wheel would install it, for this program alone, and a record of how that went.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.headers import compiled_headers
from tests.truth.catalogue import PACKAGE, SOURCES, Program

__all__ = ["REPOSITORY", "Built", "built", "refresh_runtime"]

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """One program. `refused`: the sentence of a build that refused it, else empty."""

    program: Program
    site: Path
    refused: str
    seconds: float


def key_of(program: Program) -> str:
    """Changes with all that a build depends on: the program, what it imports, and the plugin."""
    paths = [program.source, *(SOURCES / "parts").glob("*.py")]
    paths += [*(REPOSITORY / "hatch_precompile").rglob("*.py"), *(REPOSITORY / "templates").rglob("*.py")]
    digest = hashlib.sha256(json.dumps(program.entrypoint).encode())
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def built(program: Program, directory: Path, *, keep: bool) -> Built:
    """The program's site, built where it is not there or not of these sources.

    keep: take any site there is, of older sources too. Not for threads: what is printed goes to a file.
    """
    home = directory / program.name
    record = _record(home)
    if record is None or not (keep or record["key"] == key_of(program)):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        with (home / "log.txt").open("w") as log, contextlib.redirect_stdout(log):
            _build(program, home)
        record = _record(home)
        assert record is not None
    elif keep and not record["refused"]:
        refresh_runtime(home / "site")
    return Built(program, home / "site", record["refused"], record["seconds"])


def refresh_runtime(site: Path) -> None:
    """The runtime as it is in the checkout now, beside the bundle as it was built."""
    from hatch_precompile.bundle.writer import write_runtime

    write_runtime(site / PACKAGE / "_precompiled")


def _record(home: Path) -> dict[str, Any] | None:
    path = home / "record.json"
    return json.loads(path.read_text()) if path.exists() else None


def _build(program: Program, home: Path) -> None:
    from hatch_precompile.build import build_bundle
    from hatch_precompile.config import load
    from hatch_precompile.errors import BuildError

    config = load({"entrypoints": [program.entrypoint], "package": PACKAGE}, default_package=PACKAGE)
    key, started, refused = key_of(program), time.perf_counter(), ""
    work = home / "work"
    work.mkdir()
    try:
        build_bundle(config, source_roots=[SOURCES], work=work, report=print, headers=compiled_headers())
        shutil.copytree(work / "site" / PACKAGE / "_precompiled", home / "site" / PACKAGE / "_precompiled")
        shutil.copy(work / "site" / PACKAGE / "__init__.py", home / "site" / PACKAGE)
    except BuildError as error:
        refused = str(error)
    shutil.rmtree(work)
    record = {"key": key, "refused": refused, "seconds": round(time.perf_counter() - started, 1)}
    (home / "record.json").write_text(json.dumps(record))
