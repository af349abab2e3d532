"""The manifest of a bundle as structures, on top of what captures have (records.py); and reading one.

`manifest_rules.py` says whether one is all that it must be.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from hatch_precompile.errors import OutsideError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.records import (
    EntryRecord,
    FrameRecord,
    GraphRecord,
    Number,
    Reference,
    ResumeRecord,
    SkippedFrame,
)
from hatch_precompile.runtime import cells
from hatch_precompile.runtime import manifest as rules

__all__ = [
    "INDEX_FORMAT",
    "MOST",
    "BundledEntry",
    "BundledFrame",
    "EntrypointRecord",
    "Index",
    "IndexedCell",
    "Manifest",
    "NoShardError",
    "LeftOutRecord",
    "Part",
    "Recipe",
    "VariantRecord",
    "read_index",
    "read_manifest",
]

MOST = 16 << 20
"""Bytes of a manifest. That of 256 entries takes 300 kB."""

INDEX_FORMAT = cells.FORMAT
"""Of the index of a merged wheel."""

Kind = TypeVar("Kind")

_KEYS = ("built_with", "variants", "entrypoints", "frames", "graphs", "resumes", "files")


class NoShardError(OutsideError):
    """A manifest says that it is of a shard, and not of which."""


class VariantRecord(Struct, frozen=True):
    """`device`: what torch calls the devices that it is for, left out for CPUs; `run`: whether the build ran
    its kernels, likewise."""

    name: str = ""
    backend: str = ""
    requires: list[str] = []
    device: str | UnsetType = UNSET
    run: bool | UnsetType = UNSET


class Recipe(Struct, frozen=True, omit_defaults=True):
    """What makes the samples again."""

    samples: str | None = None
    workload: str | None = None
    instance: str | None = None


class EntrypointRecord(Struct, frozen=True):
    name: str = ""
    target: str = ""
    home: Reference = ("", [])
    kind: str = ""
    mode: str | list[str] = []
    activate: str = ""
    on_miss: str = ""
    samples: Number = 0
    recipe: Recipe | None = None
    made_from: dict[str, str] | None = None
    skipped: list[SkippedFrame] = []
    rounded: dict[str, str] = {}
    frames: list[Number] = []


class BundledEntry(EntryRecord, frozen=True):
    """The first of its entrypoint's graphs and resume functions, too, among all of the bundle."""

    first_graph: Number = 0
    first_resume: Number = 0


class BundledFrame(FrameRecord, Struct, frozen=True):
    heads: str = ""
    entries: list[BundledEntry] = []


class Part(Struct, frozen=True):
    """A shard, in its manifest. `entrypoints`: all that the configuration has, in its order."""

    shard: int
    of: int
    entrypoints: list[str]


class LeftOutRecord(Struct, frozen=True):
    """An entrypoint that the configuration has and the wheel has not, with on-error = "warn"."""

    name: str = ""
    target: str = ""


class Manifest(Struct, frozen=True):
    """format: None where the manifest does not say, which one of ours does; lacking: the keys that such a one
    has, too."""

    format: int | None = None
    built_with: dict[str, str] = {}
    variants: list[VariantRecord] = []
    entrypoints: list[EntrypointRecord] = []
    frames: list[BundledFrame] = []
    graphs: list[GraphRecord] = []
    resumes: list[ResumeRecord] = []
    files: dict[str, str] = {}
    part: Part | None = None
    left_out: list[LeftOutRecord] = []
    lacking: tuple[str, ...] = ()

    def entrypoint(self, name: str) -> EntrypointRecord | None:
        return next((each for each in self.entrypoints if each.name == name), None)


class IndexedCell(Struct, frozen=True):
    name: str
    magic: str
    python: str
    torch: str
    cuda: str | UnsetType = UNSET


class Index(Struct, frozen=True):
    """That of a merged wheel."""

    cells: Annotated[list[IndexedCell], Meta(min_length=1, max_length=1000)]
    format: int


def read_manifest(content: bytes, where: str) -> Manifest:
    """Raises OutsideError, which calls it `where`."""
    value = _parsed(content, where)
    if "sha256" in value and not rules.is_unchanged(content):  # one without was made by hand
        raise OutsideError(f"{where} is damaged: it is not as it was built, its sha256 is another")
    lacking = tuple(key for key in _KEYS if key not in value)
    return _converted({**value, "lacking": lacking}, where, Manifest)


def read_index(content: bytes, where: str) -> Index:
    """Raises OutsideError, which calls it `where`."""
    value = _parsed(content, where)
    if value.get("format") != INDEX_FORMAT:
        raise OutsideError(
            f"{where} has format {value.get('format')!r}, this runtime reads {INDEX_FORMAT}; "
            "build the wheel again"
        )
    return _converted(value, where, Index)


def _parsed(content: bytes, where: str) -> dict[str, Any]:
    if len(content) > MOST:
        raise OutsideError(f"{where} is damaged: of {in_bytes(MOST)} at most it has {in_bytes(len(content))}")
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise OutsideError(f"{where} is damaged: {where.rpartition('/')[2]} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise OutsideError(f"{where} is damaged: expected a JSON object")
    return value


def _converted(value: dict[str, Any], where: str, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        if "`$.part" in str(error):
            raise NoShardError(
                f"{where} is damaged: its manifest does not say which shard it is: {error}"
            ) from None
        raise OutsideError(f"{where} is damaged: {error}") from None
