"""`hatch-precompile build`: a project's wheel, with what is being compiled on the screen."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find
from hatch_precompile.cli.printing import note, table
from hatch_precompile.cli.progress import Board
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.frontends.pep517 import Built, build_wheel
from hatch_precompile.frontends.project import read_project

__all__ = ["build"]


@click.command(short_help="Build a project's wheel and show what is compiled.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--outdir",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the wheel goes. [default: the folder dist in DIR]",
)
@click.option(
    "--no-isolation",
    is_flag=True,
    help="Build with what is installed here, instead of in an environment made from build-system.requires.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(directory: Path, outdir: Path | None, no_isolation: bool, as_json: bool) -> None:
    """Build the wheel of the project in DIR, and show what is being compiled.

    On a terminal one line for each entrypoint is kept up to date; elsewhere every line of the build is
    printed, to stderr. The summary goes to stdout.
    """
    try:
        project = read_project(directory)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if not project.tables:
        raise click.UsageError(
            f"the project in {directory} configures no entrypoints; `hatch-precompile init` proposes some"
        )
    started = time.monotonic()
    board = Board()
    screen = Console(stderr=True)
    live = screen.is_terminal

    def on_line(line: str) -> None:
        if not live:
            note(line)
        elif line.startswith("* "):
            board.status = line.removeprefix("* ").rstrip(".:")

    try:
        with Live(board, console=screen, transient=True) if live else nullcontext():
            built = build_wheel(
                directory,
                outdir or directory / "dist",
                isolated=not no_isolation,
                on_event=board.apply,
                on_line=on_line,
            )
        bundles = find(str(built.wheel))
    except (BuildError, ManifestError) as error:
        raise click.ClickException(str(error)) from error
    summary = _summary(built, bundles, board, time.monotonic() - started)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)


def _summary(built: Built, bundles: list[FoundManifest], board: Board, seconds: float) -> dict[str, Any]:
    return {
        "wheel": str(built.wheel),
        "report": None if built.report is None else str(built.report),
        "bytes": built.wheel.stat().st_size,
        "seconds": round(seconds, 1),
        "entrypoints": [
            _entrypoint(bundle, record, board)
            for bundle in bundles
            for record in bundle.manifest["entrypoints"]
        ],
        "left_out": [row.problem for row in board.rows.values() if row.problem],
    }


def _entrypoint(bundle: FoundManifest, record: dict[str, Any], board: Board) -> dict[str, Any]:
    row = board.rows.get(record["name"])
    prefix = f"{record['name']}/graphs/"
    libraries = [name for name in bundle.sizes if name.startswith(prefix) and name.endswith(".so")]
    return {
        "package": bundle.package,
        "name": record["name"],
        "target": record["target"],
        "samples": record["samples"],
        "entries": row.entries if row else None,
        "graphs": row.graphs if row else None,
        "library_bytes": sum(bundle.sizes[name] for name in libraries),
        "capture_seconds": row.captured if row else None,
        "verify_seconds": row.verified if row else None,
        "largest_difference": max(row.differences, default=None) if row else None,
    }


def _show(summary: dict[str, Any]) -> None:
    columns = ["name", "samples", "entries", "graphs", "size", "capture", "verify", "from eager"]
    rows = [
        [
            each["name"],
            each["samples"],
            each["entries"],
            each["graphs"],
            in_bytes(each["library_bytes"]),
            _number(each["capture_seconds"], "{:.1f} s"),
            _number(each["verify_seconds"], "{:.1f} s"),
            _number(each["largest_difference"], "{:.1e}"),
        ]
        for each in summary["entrypoints"]
    ]
    Console(highlight=False).print(table("compiled", columns, rows))
    for problem in summary["left_out"]:
        click.echo(problem)
    if summary["report"] is not None:
        click.echo(f"the report of the build is {summary['report']}")
    click.echo(f"{summary['wheel']}, {in_bytes(summary['bytes'])}, {summary['seconds']:.0f} s")


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
