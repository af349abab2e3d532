"""`hatch-precompile build`: a project's wheel, with what is being compiled on the screen."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find
from hatch_precompile.cli.build_matrix import Places, build_one_cell, build_whole
from hatch_precompile.cli.printing import note, say
from hatch_precompile.cli.progress import Board
from hatch_precompile.cli.summary import entrypoints, entrypoints_table
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.frontends.common import REUSE
from hatch_precompile.frontends.pep517 import Built, build_wheel
from hatch_precompile.frontends.project import Project, read_project, require_read

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
@click.option("--cell", metavar="CELL", help="Build for the Python and the torch of this cell of the matrix.")
@click.option("--matrix", is_flag=True, help="Build every cell of the matrix, and one wheel of all of them.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --matrix: how many cells are built here at the same time. [default: 1]",
)
@click.option(
    "--executor",
    metavar="MODULE:FACTORY",
    help="With --matrix: build where the concurrent.futures.Executor does that this function returns.",
)
@click.option("--dask", metavar="ADDRESS", help="With --matrix: build on the cluster of this scheduler.")
@click.option(
    "--shards",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --matrix: split the entrypoints of each cell over N builds. [default: 1]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="With --matrix: keep the cells that an earlier run has built of the same sources.",
)
@click.option(
    "--reuse",
    metavar="WHEEL",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take over from an earlier wheel what has not changed since it was built.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(
    directory: Path,
    outdir: Path | None,
    no_isolation: bool,
    cell: str | None,
    matrix: bool,
    jobs: int | None,
    executor: str | None,
    dask: str | None,
    shards: int | None,
    resume: bool,
    reuse: Path | None,
    as_json: bool,
) -> None:
    """Build the wheel of the project in DIR, and show what is being compiled.

    On a terminal one line for each entrypoint is kept up to date; elsewhere every line of the build is
    printed, to stderr. The summary goes to stdout.
    """
    _check_options(no_isolation, cell, matrix, [jobs, executor, dask], resume or shards is not None)
    try:
        project = read_project(directory)
        require_read(project)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if not project.tables:
        raise click.UsageError(
            f"the project in {directory} configures no entrypoints; `hatch-precompile init` proposes some"
        )
    outdir = outdir or directory / "dist"
    if matrix:
        places = Places(jobs or 1, executor, dask)
        build_whole(project, outdir, places, shards=shards or 1, resume=resume, reuse=reuse, as_json=as_json)
        return
    started = time.monotonic()
    board = Board()
    try:
        built = _build(project, outdir, cell, not no_isolation, reuse, board)
        bundles = find(str(built.wheel))
    except (BuildError, ManifestError) as error:
        raise click.ClickException(str(error)) from error
    summary = _summary(built, bundles, board, time.monotonic() - started)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)


def _check_options(no_isolation: bool, cell: str | None, matrix: bool, places: list[Any], more: bool) -> None:
    given = [each for each in places if each is not None]
    if not matrix and (given or more):
        raise click.UsageError("--jobs, --executor, --dask, --shards and --resume are for --matrix")
    if len(given) > 1:
        raise click.UsageError("--jobs, --executor and --dask exclude each other")
    if matrix and cell is not None:
        raise click.UsageError("--cell and --matrix exclude each other")
    if no_isolation and (matrix or cell is not None):
        raise click.UsageError("a cell is built in an environment of its own, so not with --no-isolation")


def _build(
    project: Project, outdir: Path, cell: str | None, isolated: bool, reuse: Path | None, board: Board
) -> Built:
    screen = Console(stderr=True)
    live = screen.is_terminal

    def on_line(line: str) -> None:
        if not live:
            note(line)
        elif line.startswith("* "):
            board.status = line.removeprefix("* ").rstrip(".:")

    with Live(board, console=screen, transient=True) if live else nullcontext():
        if cell is not None:
            return build_one_cell(project, cell, outdir, reuse, board.apply, on_line)
        return build_wheel(
            project.directory,
            outdir,
            isolated=isolated,
            on_event=board.apply,
            on_line=on_line,
            environment={**os.environ, **({REUSE: str(reuse.resolve())} if reuse else {})},
        )


def _summary(built: Built, bundles: list[FoundManifest], board: Board, seconds: float) -> dict[str, Any]:
    return {
        "wheel": str(built.wheel),
        "report": None if built.report is None else str(built.report),
        "bytes": built.wheel.stat().st_size,
        "seconds": round(seconds, 1),
        "entrypoints": entrypoints(bundles, board),
        "left_out": board.problems(),
    }


def _show(summary: dict[str, Any]) -> None:
    Console(highlight=False).print(entrypoints_table("compiled", summary["entrypoints"]))
    for problem in summary["left_out"]:
        say(problem)
    if summary["report"] is not None:
        say(f"the report of the build is {summary['report']}")
    say(f"{summary['wheel']}, {in_bytes(summary['bytes'])}, {summary['seconds']:.0f} s")
