"""`hatch-precompile build --cell` and `--matrix`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from hatch_precompile.bundle.reader import find_cells
from hatch_precompile.cli.matrix_progress import MatrixBoard
from hatch_precompile.cli.printing import note, say
from hatch_precompile.cli.progress import Board
from hatch_precompile.cli.summary import entrypoints, entrypoints_table
from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.events import Event
from hatch_precompile.formatting import in_bytes
from hatch_precompile.frontends.pep517 import Built
from hatch_precompile.frontends.project import Project
from hatch_precompile.matrix.build import BuiltMatrix, build_matrix
from hatch_precompile.matrix.plan import Plan, plan_of
from hatch_precompile.matrix.pools import GivenPool, LocalPool, Pool, executor_factory
from hatch_precompile.wheel.contents import page_path

__all__ = ["Places", "build_one_cell", "build_whole"]


@dataclass(frozen=True)
class Places:
    """Where cells are built: here, `jobs` at a time, or by an executor or a cluster that is named."""

    jobs: int
    executor: str | None
    dask: str | None


def build_one_cell(
    project: Project,
    name: str,
    outdir: Path,
    reuse: Path | None,
    on_event: Callable[[Event], None],
    on_line: Callable[[str], None],
) -> Built:
    """Build the wheel of a cell into `outdir`. Raises BuildError; UsageError where there is no such cell."""
    from hatch_precompile.matrix.build import task_of
    from hatch_precompile.matrix.cell import build_cell

    try:
        cell = plan_of(project).cell(name)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    built = build_cell(task_of(project, cell, reuse, on_line), on_event, on_line)
    return built.write(outdir)


def build_whole(
    project: Project,
    outdir: Path,
    places: Places,
    *,
    shards: int,
    resume: bool,
    reuse: Path | None,
    as_json: bool,
) -> None:
    """Build every cell, show them while that lasts, and say what came of it."""
    try:
        plan = plan_of(project, shards)
        factory = executor_factory(places.executor) if places.executor else None
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    started = time.monotonic()
    board = MatrixBoard(plan.cells)
    screen = Console(stderr=True)
    live = Live(board, console=screen, transient=True) if screen.is_terminal else None

    def on_line(line: str, cell: Cell | None = None) -> None:
        if not live:
            note(f"{cell.name}: {line}" if cell else line)
        elif cell is None or line.startswith("* "):
            shown = board.rows[cell].board if cell else board
            shown.status = line.removeprefix("* ").rstrip(".:")
            live.refresh()  # now: what is over before the next regular one would never be seen

    def on_state(cell: Cell, state: Any, text: str) -> None:
        board.change(cell, state, text)
        if live:
            live.refresh()
        else:
            note(f"{cell.name}: {state}" + (f": {text}" if text else ""))

    def pool() -> Pool:
        if factory:
            return GivenPool(factory)
        if places.dask:
            from hatch_precompile.matrix.dask import DaskPool

            cells = {cell.name: cell for cell in plan.cells}
            return DaskPool(
                places.dask,
                plan.variants,
                lambda name: on_state(cells[name], "building", ""),
                lambda name, event: board.apply(cells[name], event),
            )
        return LocalPool(places.jobs, board.apply, lambda cell, line: on_line(line, cell))

    try:
        with live or nullcontext():
            result = build_matrix(
                project,
                plan,
                outdir,
                pool=pool,
                resume=resume,
                reuse=reuse,
                on_state=on_state,
                on_line=on_line,
            )
    except BuildError as error:
        raise click.ClickException(str(error)) from error
    _tell(result, plan, board, time.monotonic() - started, as_json)


def _tell(result: BuiltMatrix, plan: Plan, board: MatrixBoard, seconds: float, as_json: bool) -> None:
    summary = _summary(result, plan, board, seconds)
    if result.wheel and result.pages:
        summary["report"] = str(_write_page(summary, result))
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)
    if result.failed:
        names = ", ".join(cell.name for cell in result.failed)
        raise click.ClickException(
            f"{len(result.failed)} of {len(plan.cells)} cells failed: {names}\n"
            f"The wheels of the others are in {result.kept}; --resume builds what is missing."
        )


def _summary(result: BuiltMatrix, plan: Plan, board: MatrixBoard, seconds: float) -> dict[str, Any]:
    return {
        "wheel": str(result.wheel) if result.wheel else None,
        "bytes": result.wheel.stat().st_size if result.wheel else None,
        "report": None,
        "reports": [str(page) for page in result.pages.values()],
        "seconds": round(seconds, 1),
        "cells": [_cell(cell, plan, result, board) for cell in plan.cells],
    }


def _cell(cell: Cell, plan: Plan, result: BuiltMatrix, board: MatrixBoard) -> dict[str, Any]:
    error = result.failed.get(cell)
    built = next((each for each in result.built if each.cell == cell), None)
    told = Board()
    for event in built.events if built else []:
        told.apply(event)
    wheel = result.wheel or result.kept_wheel(cell)
    bundles = [each for each in find_cells(str(wheel)) if each.cell == cell.versions] if wheel else []
    own = set(plan.entrypoints_of(cell))
    return {
        "name": cell.name,
        "state": "resumed" if cell in result.resumed else board.rows[cell].state,
        "seconds": round(built.seconds, 1) if built else None,
        "problem": str(error) if error else None,
        "entrypoints": [each for each in entrypoints(bundles, told) if each["name"] in own],
        "left_out": told.problems(),
    }


def _write_page(summary: dict[str, Any], result: BuiltMatrix) -> Path:
    from hatch_precompile.report import render_matrix

    path = page_path(Path(summary["wheel"]))
    path.write_text(
        render_matrix(summary, {cell.name: page.name for cell, page in result.pages.items()}), "utf-8"
    )
    return path


def _show(summary: dict[str, Any]) -> None:
    console = Console(highlight=False)
    for cell in summary["cells"]:
        if cell["problem"] is not None:
            say(f"{cell['name']}: failed: {cell['problem']}")
            continue
        took = "by an earlier run" if cell["seconds"] is None else f"{cell['seconds']:.0f} s"
        console.print(entrypoints_table(f"{cell['name']}, {took}", cell["entrypoints"]))
        for problem in cell["left_out"]:
            say(f"{cell['name']}: {problem}")
    if summary["report"] is not None:
        say(f"the report of all cells is {summary['report']}")
    if summary["wheel"] is not None:
        say(f"{summary['wheel']}, {in_bytes(summary['bytes'])}, {summary['seconds']:.0f} s")
