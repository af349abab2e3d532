"""The bundles of one wheel, and the cells in each, held against their manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET
from packaging.version import Version

from hatch_precompile.bundle.format import BUNDLE, INDEX, MANIFEST
from hatch_precompile.errors import BuildError
from hatch_precompile.merge.archive import Content
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.runtime import cells as rules
from hatch_precompile.runtime import manifest as manifests
from hatch_precompile.validation.manifest_rules import check_manifest
from hatch_precompile.validation.manifests import read_index, read_manifest

__all__ = ["Cell", "in_order", "take_bundles"]


@dataclass(frozen=True)
class Cell:
    """One build of one package. files: of its bundle, by their paths in the manifest."""

    name: str
    manifest: Content
    built_with: Mapping[str, str]
    files: Mapping[str, Content]

    @property
    def listed(self) -> dict[str, str]:
        """What the index of a merged wheel says of it, beside its name."""
        return {key: self.built_with[key] for key in rules.LISTED if key in self.built_with}

    @property
    def python(self) -> tuple[int, ...]:
        return tuple(map(int, self.built_with["python"].split(".")))

    @property
    def torch(self) -> Version:
        return Version(self.built_with["torch"])

    @property
    def cuda(self) -> tuple[int, ...]:
        """Empty without code for GPUs."""
        return tuple(map(int, self.built_with["cuda"].split("."))) if "cuda" in self.built_with else ()


def in_order(cells: Mapping[str, Cell]) -> list[Cell]:
    """Sorted by Python, by torch without its local part, and by CUDA, as versions."""
    return sorted(cells.values(), key=lambda cell: (cell.python, Version(cell.torch.public), cell.cuda))


def take_bundles(wheel: Path, files: dict[str, Content]) -> dict[str, dict[str, Cell]]:
    """Take what is of bundles out of a wheel's files: the cells of each, by the folder of the bundle.

    Raises BuildError where there is none, or where one is not whole.
    """
    folders = sorted({name.partition(f"/{BUNDLE}")[0] for name in files if f"/{BUNDLE}" in name})
    if not folders:
        raise BuildError(f"{wheel} carries no compiled code: there is no {MANIFEST} in it")
    bundles = {}
    for package in folders:
        if f"{package}/{RUNTIME_PACKAGE}/loading/cells.py" not in files:
            raise BuildError(
                f"the runtime in {wheel} is of a hatch-precompile that knows no merged wheels; "
                "build it again with this one"
            )
        folder = f"{package}/{BUNDLE}"
        own = {name.removeprefix(folder): files.pop(name) for name in list(files) if name.startswith(folder)}
        bundles[folder] = _cells_of(wheel, folder, own)
    return bundles


def _cells_of(wheel: Path, folder: str, files: dict[str, Content]) -> dict[str, Cell]:
    """The cells of a bundle by their names; files: those of its folder."""
    manifest, index = MANIFEST.removeprefix(BUNDLE), INDEX.removeprefix(BUNDLE)
    where = f"{folder} of {wheel}"
    if (manifest in files) == (index in files):
        raise BuildError(f"{where} must have either {manifest} or {index}; build the wheel again")
    if manifest in files:
        cells = [_cell(where, files, manifest, lambda name, digest: name)]
        known = {manifest}
    else:
        cells = _indexed(where, files, index)
        known = {index, *(rules.manifest_of(cell.name) for cell in cells)}
    known |= {content.name.removeprefix(folder) for cell in cells for content in cell.files.values()}
    unknown = sorted(set(files) - known)
    if unknown:
        raise BuildError(f"{where} holds {unknown[0]}, which no manifest lists; build the wheel again")
    return {cell.name: cell for cell in cells}


def _indexed(where: str, files: dict[str, Content], index: str) -> list[Cell]:
    listed = read_index(files[index].read(), f"{where}: {index}")
    cells = []
    for each in listed.cells:
        path = rules.manifest_of(each.name)
        if not rules.is_name(each.name):
            raise BuildError(
                f"{where}: {index} is damaged: it lists {each.name!r}, which is no name of a cell"
            )
        if path not in files:
            raise BuildError(f"{where} lacks {path}, which {index} lists")
        cell = _cell(where, files, path, rules.stored_as)
        listed_as = {key: value for key in rules.LISTED if (value := getattr(each, key)) is not UNSET}
        if cell.name != each.name or listed_as != cell.listed:
            raise BuildError(f"{where} is damaged: {path} is not of the cell that {index} has")
        cells.append(cell)
    return cells


def _cell(where: str, files: dict[str, Content], path: str, place: Any) -> Cell:
    content = files[path]
    manifest = read_manifest(content.read(), f"{where}: {path}")
    check_manifest(manifest, f"{where}: {path}")
    own = {}
    for name, digest in manifest.files.items():
        found = files.get(place(name, digest))
        if found is None:
            raise BuildError(f"{where} lacks {name}, which {path} lists")
        if found.digest != digest:
            raise BuildError(f"{where} is damaged: {name} has not the sha256 that {path} says")
        own[name] = found
    name = manifests.cell_name(manifest.built_with)
    if not rules.is_name(name):
        raise BuildError(f"{where} cannot be merged: {name!r}, as {path} has it, is no name of a cell")
    return Cell(name, content, manifest.built_with, own)
