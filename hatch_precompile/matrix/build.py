"""The wheel of a whole matrix: its source distribution, its cells, and the merge of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.project import Project
from hatch_precompile.matrix.cell import BuiltCell, Task
from hatch_precompile.matrix.plan import Plan
from hatch_precompile.matrix.pools import Pool
from hatch_precompile.matrix.scheduling import OnState, build_cells
from hatch_precompile.matrix.source import make_source
from hatch_precompile.matrix.wheel_cache import Kept
from hatch_precompile.merge import merge_wheels

__all__ = ["BuiltMatrix", "build_matrix", "task_of"]

# What hatchling takes where nothing is said. One time for all workers, as wheels carry it.
_EPOCH = "1580601600"


@dataclass
class BuiltMatrix:
    """What became of a matrix. `wheel`: None where a cell has failed; `resumed`: built by an earlier run;
    `kept`: where the wheels of cells are, if they are not merged. What was built is without its files."""

    wheel: Path | None = None
    pages: dict[Cell, Path] = field(default_factory=dict)
    built: list[BuiltCell] = field(default_factory=list)
    resumed: list[Cell] = field(default_factory=list)
    failed: dict[Cell, BuildError] = field(default_factory=dict)
    kept: Path | None = None

    def kept_wheel(self, cell: Cell) -> Path | None:
        """The wheel of a cell that is not merged."""
        return Kept(self.kept).wheel(cell) if self.kept else None


def task_of(project: Project, cell: Cell, reuse: Path | None, on_line: Callable[[str], None]) -> Task:
    """What builds one cell of a project: the same bytes alone as within the matrix."""
    return _tasks(project, [cell], reuse, on_line)[0]


def build_matrix(
    project: Project,
    plan: Plan,
    outdir: Path,
    *,
    pool: Callable[[], Pool],
    resume: bool,
    reuse: Path | None,
    on_state: OnState,
    on_line: Callable[[str], None],
) -> BuiltMatrix:
    """Build every cell of a plan and merge the wheels into `outdir`.

    Wheels of cells are kept in a folder of it until all are there; with `resume`, those that it has from the
    same sources are not built again; `reuse` is an earlier wheel, to take over from. Raises BuildError where
    nothing can be built or merged; a cell that fails is in the result.
    """
    tasks = _tasks(project, plan.cells, reuse, on_line)
    kept = Kept(outdir / "cells")
    kept.begin(tasks[0].source.digest(), resume=resume)
    result = BuiltMatrix(kept=kept.directory)

    def keep(built: BuiltCell) -> None:
        kept.keep(built)
        # From here on it is in its file; not all wheels at once are in memory.
        result.built.append(replace(built, wheel=b"", page=None))

    result.resumed = [cell for cell in plan.cells if kept.wheel(cell) is not None]
    for cell in result.resumed:
        on_state(cell, "built", "by an earlier run")
    missing = [task for task in tasks if task.cell not in result.resumed]
    if missing:
        result.failed = build_cells(missing, pool(), keep, on_state)
    if result.failed:
        return result
    wheels = [wheel for cell in plan.cells if (wheel := kept.wheel(cell)) is not None]
    try:
        result.wheel = merge_wheels(
            wheels, outdir, planned=list(dict.fromkeys(cell.versions for cell in plan.cells))
        ).wheel
    except BuildError as error:
        raise BuildError(f"{error}\nthe wheels of the cells are in {kept.directory}") from error
    result.pages = _pages(kept, plan.cells, result.wheel)
    kept.remove()
    result.kept = None
    return result


def _tasks(
    project: Project, cells: list[Cell], reuse: Path | None, on_line: Callable[[str], None]
) -> list[Task]:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", _EPOCH)
    on_line("* Making the source distribution...")
    variables = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    source = make_source(project.directory, variables, cells[0].torch, on_line)
    run = uuid.uuid4().hex
    earlier = (reuse.name, reuse.read_bytes()) if reuse else None
    return [Task(cell, source, epoch, run, earlier=earlier) for cell in cells]


def _pages(kept: Kept, cells: list[Cell], wheel: Path) -> dict[Cell, Path]:
    """The reports of the cells, beside the wheel of all of them."""
    pages = {}
    for cell in cells:
        page = kept.page(cell)
        if page is not None:
            beside = wheel.with_name(f"{wheel.stem}.{cell.name}.report.html")
            pages[cell] = Path(shutil.move(page, beside))
    return pages
