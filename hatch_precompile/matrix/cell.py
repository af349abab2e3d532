"""One cell, built: a source distribution in, a wheel out, both as bytes, so any machine can do it."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hatch_precompile import __version__
from hatch_precompile.bundle.reader import ManifestError, find_cells
from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.events import Event
from hatch_precompile.frontends.common import REUSE, SHARD
from hatch_precompile.frontends.pep517 import Built, build_wheel
from hatch_precompile.matrix.environment import Environment, make_environment
from hatch_precompile.matrix.source import Source
from hatch_precompile.processes import commands_of, stopping_children
from hatch_precompile.validation.names import is_file_name
from hatch_precompile.wheel.contents import page_path

__all__ = ["BuiltCell", "Task", "build_cell"]

OnEvent = Callable[[Event], None]
OnLine = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """What one worker is asked for. `run`: whose commands are ended together; `plugin`: the version asked;
    `earlier`: a wheel to take over from, its name and its content."""

    cell: Cell
    source: Source
    epoch: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    plugin: str = __version__
    earlier: tuple[str, bytes] | None = None


@dataclass(frozen=True)
class BuiltCell:
    """The wheel of a cell. `page`: the report beside it, None without `report = true`."""

    cell: Cell
    name: str
    wheel: bytes
    page: bytes | None
    events: list[Event]
    seconds: float

    def write(self, folder: Path) -> Built:
        """The files in a folder, which is made if it is not there. Raises BuildError where the worker that
        answers names the wheel as no wheel is named."""
        if not (is_file_name(self.name) and self.name.endswith(".whl")):
            raise BuildError(f"the worker that built {self.cell.name} calls its wheel {self.name!r}")
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / self.name
        wheel.write_bytes(self.wheel)
        if self.page is None:
            return Built(wheel, None)
        page = page_path(wheel)
        page.write_bytes(self.page)
        return Built(wheel, page)


def build_cell(task: Task, on_event: OnEvent = lambda _: None, on_line: OnLine = lambda _: None) -> BuiltCell:
    """Build the wheel of a cell in an environment made for it, and remove both.

    Raises BuildError where another try would end alike; anything else is for whoever asked to try again.
    """
    if task.plugin != __version__:
        raise BuildError(
            f"this worker has hatch-precompile {__version__}, the matrix is built with {task.plugin}; "
            "install the same version on every worker"
        )
    started = time.monotonic()
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        on_event(event)

    with (
        stopping_children(),
        commands_of(task.run),
        tempfile.TemporaryDirectory(prefix="hatch-precompile-cell-") as folder,
    ):
        project = _unpacked(task.source, Path(folder, "source"))
        variables = {**os.environ, "SOURCE_DATE_EPOCH": task.epoch}
        environment = make_environment(task.cell, Path(folder, "python"), variables, on_line)
        reuse = _written(task.earlier, Path(folder, "earlier"))
        wheel, page = _build(task.cell, project, environment, Path(folder, "dist"), reuse, hear, on_line)
        return BuiltCell(
            task.cell,
            wheel.name,
            wheel.read_bytes(),
            page.read_bytes() if page else None,
            events,
            time.monotonic() - started,
        )


def _build(
    cell: Cell,
    project: Path,
    environment: Environment,
    out: Path,
    reuse: Path | None,
    on_event: OnEvent,
    on_line: OnLine,
) -> tuple[Path, Path | None]:
    heard = False
    variables = dict(environment.variables)
    if reuse is not None:
        variables[REUSE] = str(reuse)
    if cell.shard is not None:
        variables[SHARD] = f"{cell.shard.number}of{cell.shard.of}"

    def hear(event: Event) -> None:
        nonlocal heard
        heard = True
        on_event(event)

    try:
        built = build_wheel(
            project,
            out,
            isolated=True,
            on_event=hear,
            on_line=on_line,
            python=environment.python,
            options=environment.options,
            environment=variables,
        )
    except BuildError:
        # Installers say this in many ways, and at length.
        reason = None if heard else environment.lacks_torch()
        if reason is None:
            raise
        raise BuildError(
            f"torch {cell.torch} for Python {cell.python} is not to be had here: {reason}"
        ) from None
    _check(built.wheel, cell)
    return built.wheel, built.report


def _written(earlier: tuple[str, bytes] | None, folder: Path) -> Path | None:
    if earlier is None:
        return None
    name, content = earlier
    folder.mkdir()
    (folder / name).write_bytes(content)
    return folder / name


def _check(wheel: Path, cell: Cell) -> None:
    """A wheel for another torch or Python than was asked for must not pass for one of this cell."""
    try:
        found = find_cells(str(wheel))
    except ManifestError as error:
        raise BuildError(str(error)) from error
    for bundle in found:
        if bundle.cell != cell.versions:
            made = bundle.cell or "versions that it does not name"
            raise BuildError(f"{wheel.name} is for {made}, but {cell.versions} was asked for")


def _unpacked(source: Source, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(source.content)) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
    try:
        (project,) = folder.iterdir()
    except ValueError:
        raise BuildError(f"{source.name} is no source distribution: one folder was expected in it") from None
    return project
