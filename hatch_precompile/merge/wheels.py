"""One wheel that is to be merged: its name, what it says of itself, its files and its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    canonicalize_version,
    parse_wheel_filename,
)

from hatch_precompile.errors import BuildError
from hatch_precompile.merge.archive import Content, read_archive
from hatch_precompile.merge.bundles import Cell, take_bundles
from hatch_precompile.merge.metadata import headers, with_tags, with_torch, without_tags, without_torch

__all__ = ["NAMED", "Wheel", "check_same", "read_wheel"]

NAMED = 10
"""So many files that differ are named."""


@dataclass(frozen=True)
class Wheel:
    """A wheel, read and found whole.

    stem: the start of its file's name, without the tag; common: what METADATA and WHEEL say, whatever cells
    there are; requires: whether its build added a requirement on torch; files: all others that are not of a
    bundle; bundles: cells by name, by the folder of the bundle.
    """

    path: Path
    stem: str
    tags: frozenset[Tag]
    common: Mapping[str, bytes]
    requires: bool
    files: Mapping[str, Content]
    bundles: Mapping[str, Mapping[str, Cell]]

    @property
    def cells(self) -> list[Cell]:
        return [cell for bundle in self.bundles.values() for cell in bundle.values()]

    @property
    def folder(self) -> str:
        """That of METADATA, WHEEL and RECORD."""
        return next(iter(self.common)).partition("/")[0]

    def beside_bundles(self, torches: Iterable[str], tag: str) -> dict[str, Content | bytes]:
        """What a wheel of several has that is of no bundle."""
        metadata, about = self.common
        said = with_torch(self.common[metadata], torches), with_tags(self.common[about], tag)
        return {**self.files, metadata: said[0], about: said[1]}


def read_wheel(path: Path) -> Wheel:
    """Raises BuildError for what is no wheel, is damaged, or carries no bundle."""
    if not path.is_file():
        raise BuildError(f"there is no wheel {path}")
    files = read_archive(path)
    bundles = take_bundles(path, files)
    texts = {}
    for name in ("METADATA", "WHEEL"):
        found = [file for file in files if file.endswith(f".dist-info/{name}") and file.count("/") == 1]
        if len(found) != 1:
            raise BuildError(f"{path} is not a wheel: it has {len(found)} files {name}")
        texts[name] = (found[0], files.pop(found[0]).read())
    tags = _checked_name(path, texts["METADATA"][1], texts["WHEEL"][1])
    torches = [cell.built_with["torch"] for cells in bundles.values() for cell in cells.values()]
    metadata, requires = without_torch(texts["METADATA"][1], torches)
    common = {texts["METADATA"][0]: metadata, texts["WHEEL"][0]: without_tags(texts["WHEEL"][1])}
    stem = "-".join(path.stem.split("-")[:-3])
    return Wheel(path, stem, tags, common, requires, files, bundles)


def _checked_name(path: Path, metadata: bytes, wheel: bytes) -> frozenset[Tag]:
    """The tags of a wheel, whose file has to be named for what is in it."""
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise BuildError(f"{path} has not the name of a wheel: {error}") from error
    said = (canonicalize_name(_first(metadata, "Name")), canonicalize_version(_first(metadata, "Version")))
    if said != (name, canonicalize_version(version)) or {str(tag) for tag in tags} != set(
        headers(wheel, "Tag")
    ):
        raise BuildError(
            f"{path} was renamed: it is {' '.join(said)} for {', '.join(headers(wheel, 'Tag'))}; "
            "give it the name it was built with"
        )
    return tags


def _first(content: bytes, key: str) -> str:
    return next(iter(headers(content, key)), "")


def check_same(one: Wheel, other: Wheel) -> None:
    """Raise BuildError unless two wheels are the same outside of their bundles."""
    if (one.stem, one.folder) != (other.stem, other.folder):
        raise BuildError(
            f"{one.path} is of {one.stem}, {other.path} of {other.stem}: they cannot be one wheel"
        )
    different = [*_differing_files(one, other), *_differing_texts(one, other)]
    if one.requires != other.requires:
        having, lacking = (one, other) if one.requires else (other, one)
        different.append(f"{having.path} requires the torch that it was built with, {lacking.path} does not")
    if not different:
        return
    more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
    raise BuildError(
        f"{one.path} and {other.path} are not the same outside of their bundles: "
        f"{'; '.join(different[:NAMED])}{more}; build all cells from one source, with the same tools"
    )


def _differing_files(one: Wheel, other: Wheel) -> Iterator[str]:
    for name in sorted({*one.files, *other.files, *one.bundles, *other.bundles}):
        having = [wheel for wheel in (one, other) if name in wheel.files or name in wheel.bundles]
        if len(having) == 1:
            yield f"{name} is in {having[0].path} alone"
        elif name in one.files and not one.files[name].same_as(other.files[name]):
            same = one.files[name].digest == other.files[name].digest
            yield f"{name} is executable in one of them" if same else f"{name} differs"


def _differing_texts(one: Wheel, other: Wheel) -> Iterator[str]:
    for (name, its), others in zip(one.common.items(), other.common.values(), strict=True):
        if its == others or one.requires != other.requires:
            continue
        pair = [set(text.decode("utf-8", "replace").splitlines()) for text in (its, others)]
        lines = sorted(pair[0] ^ pair[1])
        yield f"{name} differs" + (f" ({lines[0]!r} is in one of them)" if lines else "")
