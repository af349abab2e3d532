"""The folder that keeps the wheels of cells until they are merged, so that a second run can go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hatch_precompile import __version__
from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.matrix.cell import BuiltCell

__all__ = ["Kept"]

_STAMP = "cells.json"


class Kept:
    """`directory`: has a folder for each cell that was built, as wheels of one Python share a name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self, digest: str, *, resume: bool) -> None:
        """Empty it for new sources; with `resume`, keep what was built of the same.

        Raises BuildError where there is something else in its place, or nothing to go on with.
        """
        stamp = {"sources": digest, "hatch-precompile": __version__}
        found = self._stamp()
        if resume and found is None:
            raise BuildError(f"--resume: there is nothing to go on with in {self.directory}")
        if resume and found != stamp:
            raise BuildError(
                f"--resume: the wheels in {self.directory} were built from other sources, or by another "
                "hatch-precompile; build without --resume"
            )
        if found is None and self.directory.exists():
            raise BuildError(
                f"{self.directory} is where wheels of cells are kept, but was not made for it; move it away"
            )
        if not resume:
            self.remove()
            self.directory.mkdir(parents=True)
            (self.directory / _STAMP).write_text(json.dumps(stamp) + "\n")

    def wheel(self, cell: Cell) -> Path | None:
        """The wheel of a cell, None if it is not built."""
        return next((self.directory / cell.name).glob("*.whl"), None)

    def page(self, cell: Cell) -> Path | None:
        """The report beside it."""
        return next((self.directory / cell.name).glob("*.report.html"), None)

    def keep(self, built: BuiltCell) -> None:
        """Whole or not at all: what has begun to be written must not pass for a wheel."""
        begun = self.directory / f".{built.cell.name}"
        shutil.rmtree(begun, ignore_errors=True)
        built.write(begun)
        begun.rename(self.directory / built.cell.name)

    def remove(self) -> None:
        """Once the wheels are merged."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _stamp(self) -> object:
        try:
            stamp: object = json.loads((self.directory / _STAMP).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return stamp
