"""Wheels in, one wheel out: what must be the same is compared, what differs is put side by side.

The result depends on the set of cells alone, not on how they came together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from hatch_precompile.bundle.format import INDEX_FORMAT
from hatch_precompile.errors import BuildError
from hatch_precompile.merge.archive import Content
from hatch_precompile.merge.bundles import Cell, in_order
from hatch_precompile.merge.metadata import range_of
from hatch_precompile.merge.shards import with_whole_cells
from hatch_precompile.merge.tags import merged_tag
from hatch_precompile.merge.wheels import NAMED, Wheel, check_same, read_wheel
from hatch_precompile.merge.zip_writer import write_wheel
from hatch_precompile.runtime import cells as rules
from hatch_precompile.runtime import manifest as manifests

__all__ = ["Merged", "merge_wheels"]


@dataclass(frozen=True)
class Merged:
    """What came of a merge.

    cells: in order of Python, torch and CUDA; missing: those that were planned and are not there; tag: of the
    wheel; requires: what it requires of torch, None if nothing; bytes: of its file; shared_bytes: of
    files that several cells have and that are stored once, uncompressed, less that one.
    """

    wheel: Path
    cells: list[str]
    missing: list[str]
    tag: str
    requires: str | None
    bytes: int
    shared_bytes: int


def merge_wheels(wheels: Sequence[Path], outdir: Path, *, planned: Sequence[str] | None = None) -> Merged:
    """One wheel with all cells of these wheels, which may be merged ones, or shards. Nothing of them is run.

    outdir: where it is written, made if need be; planned: cells that there should be, such as
    `cp311-torch2.13.0`; without it each Python that is there with each torch, and each CUDA. Raises
    BuildError where wheels do not belong together, or one is damaged; then nothing is written.
    """
    if not wheels:
        raise BuildError("there are no wheels to merge")
    with with_whole_cells(wheels) as whole:
        return _merged([read_wheel(path) for path in whole], outdir, planned)


def _merged(read: Sequence[Wheel], outdir: Path, planned: Sequence[str] | None) -> Merged:
    first = read[0]
    for other in read[1:]:
        check_same(first, other)
    bundles = {
        folder: _united(folder, [(wheel.path, wheel.bundles[folder]) for wheel in read])
        for folder in sorted(first.bundles)
    }
    cells = in_order({cell.name: cell for bundle in bundles.values() for cell in bundle.values()})
    tag = merged_tag({wheel.path: wheel.tags for wheel in read})
    torches = [cell.built_with["torch"] for cell in cells]
    entries = first.beside_bundles(torches, tag)
    for folder, bundle in bundles.items():
        entries.update(_bundle(folder, in_order(bundle)))
    path = outdir / f"{first.stem}-{tag}.whl"
    if any(path.resolve() == wheel.path.resolve() for wheel in read):
        raise BuildError(
            f"the merged wheel would replace {path}, which is one of its parts; name another outdir"
        )
    write_wheel(path, entries, first.folder)
    return Merged(
        wheel=path,
        cells=[cell.name for cell in cells],
        missing=_missing(bundles, planned if planned is not None else _product(cells)),
        tag=tag,
        requires=range_of(torches) if first.requires else None,
        bytes=path.stat().st_size,
        shared_bytes=sum(_shared(bundle.values()) for bundle in bundles.values()),
    )


def _united(folder: str, parts: Iterable[tuple[Path, Mapping[str, Cell]]]) -> dict[str, Cell]:
    """The cells of one bundle in all wheels. Raises BuildError for two of a name that are not the same."""
    cells: dict[str, Cell] = {}
    for path, part in parts:
        for name, cell in part.items():
            before = cells.setdefault(name, cell)
            if before.manifest.digest != cell.manifest.digest:
                both = f"{before.manifest.wheel} and {path} both have {name} in {folder}"
                differing = [
                    file
                    # Heads, which have the manifest's seal, differ with anything else: they come last.
                    for file in sorted(
                        {*before.files, *cell.files}, key=lambda name: (".heads" in name, name)
                    )
                    if file not in before.files
                    or file not in cell.files
                    or before.files[file].digest != cell.files[file].digest
                ]
                raise BuildError(
                    f"{both}, and not the same one: "
                    f"{', '.join([*differing[:NAMED], 'manifest.json'])} differ; leave one of them out"
                )
    return cells


def _bundle(folder: str, cells: list[Cell]) -> Iterator[tuple[str, Content | bytes]]:
    """The files of a bundle: an index, a manifest for each cell, and what they list, once."""
    listed = [{"name": cell.name, **cell.listed} for cell in cells]
    index = {"format": INDEX_FORMAT, "cells": listed}
    yield folder + rules.INDEX, msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
    for cell in cells:
        yield folder + rules.manifest_of(cell.name), replace(cell.manifest, executable=False)
        for name, content in cell.files.items():
            yield folder + rules.stored_as(name, content.digest), replace(content, executable=False)


def _shared(cells: Iterable[Cell]) -> int:
    """Bytes that are not stored again: for each content, all files but one."""
    files = [content for cell in cells for content in cell.files.values()]
    return sum(content.size for content in files) - sum({each.digest: each.size for each in files}.values())


def _product(cells: Iterable[Cell]) -> list[str]:
    """The cells of each Python with each torch, and each CUDA, in order."""
    kept = list(cells)
    pythons = dict.fromkeys(cell.built_with["python"] for cell in kept)
    torches = sorted({cell.torch.public: cell.built_with["torch"] for cell in kept}.items())
    cudas = [cell.built_with["cuda"] for cell in sorted(kept, key=lambda cell: cell.cuda) if cell.cuda]
    return [
        manifests.cell_name({"python": python, "torch": torch, **({"cuda": cuda} if cuda else {})})
        for python in pythons
        for _, torch in torches
        for cuda in dict.fromkeys(cudas or [""])
    ]


def _missing(bundles: Mapping[str, Mapping[str, Cell]], planned: Iterable[str]) -> list[str]:
    return [name for name in planned if any(name not in bundle for bundle in bundles.values())]
