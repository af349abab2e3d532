"""The manifest of a bundle as structures: every value has its type and its range.

docs/bundle-format.md says what each means. What is missing has a default, so that a manifest of another
format can be shown; `whole.py` says whether one is all that it must be.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hatch_precompile.errors import OutsideError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.runtime import runtime

__all__ = [
    "INDEX_FORMAT",
    "MOST",
    "ConstantRecord",
    "EntryRecord",
    "EntrypointRecord",
    "FrameRecord",
    "GraphRecord",
    "Index",
    "IndexedCell",
    "Manifest",
    "NoShardError",
    "LeftOutRecord",
    "Part",
    "Recipe",
    "ResumeRecord",
    "SkippedRecord",
    "VariantRecord",
    "read_index",
    "read_manifest",
]

MOST = 16 << 20
"""Bytes of a manifest. That of 256 entries takes 300 kB."""

INDEX_FORMAT = 1
"""Of the index of a merged wheel (templates/cells.py has the same number)."""

Kind = TypeVar("Kind")

_KEYS = ("built_with", "variants", "entrypoints", "frames", "graphs", "resumes", "files")

Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
Size = Annotated[int, Meta(ge=0, lt=1 << 48)]
Reference = tuple[str, list[Any]]
Place = tuple[str, list[Any], str]


class NoShardError(OutsideError):
    """A manifest says that it is of a shard, and not of which."""


class VariantRecord(Struct, frozen=True):
    name: str = ""
    backend: str = ""
    requires: list[str] = []


class SkippedRecord(Struct, frozen=True):
    function: str = ""
    reason: str = ""


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
    skipped: list[SkippedRecord] = []
    rounded: dict[str, str] = {}
    frames: list[Number] = []


class EntryRecord(Struct, frozen=True):
    data: str = ""
    source: str = ""
    guards: str = ""
    graphs: list[Number] = []
    sample: Number = 0
    checks: Number = 0
    dropped: Number = 0
    rebound: Number = 0
    by_kind: dict[str, Number] = {}
    native: bool = False
    first_graph: Number = 0
    first_resume: Number = 0


class FrameRecord(Struct, frozen=True):
    qualname: str = ""
    module: str = ""
    functions: list[Place] = []
    code: Place | None = None
    resume: Number | None = None
    heads: str = ""
    entries: list[EntryRecord] = []


class ConstantRecord(Struct, frozen=True, omit_defaults=True):
    file: str
    dtype: str
    size: list[Size]
    name: str = ""


class GraphRecord(Struct, frozen=True):
    libraries: dict[str, str] = {}
    inputs: Number = 0
    outputs: Number = 0
    readable: str = ""
    scalar_outputs: list[Number] = []
    input_outputs: dict[Number, Number] = {}
    view_outputs: dict[Number, Number] = {}
    detached_outputs: dict[Number, bool] = {}
    direct: bool = False
    written_inputs: list[Number] = []
    copied_inputs: list[Number] = []
    changes_inputs: bool = False
    unwrapped_inputs: dict[Number, list[list[str]]] = {}
    rounded: dict[str, str] = {}
    hidden_weights: bool = False
    weights: dict[str, str] = {}
    constants: list[ConstantRecord] = []
    python: dict[str, str] = {}
    kernels: dict[str, list[str]] = {}
    why_python: str = ""
    disable_autocast: bool = False
    disable_grad: bool = False
    backward: GraphRecord | None = None
    wrapping: str = ""
    why_wrapped: str = ""

    def files(self) -> dict[str, list[str]]:
        """Variant to the files it is called through: its library, or a Python wrapper and its kernels."""
        found = {variant: [path] for variant, path in self.libraries.items()}
        return found | {
            variant: [path, *self.kernels.get(variant, [])] for variant, path in self.python.items()
        }


class ResumeRecord(Struct, frozen=True):
    code: str = ""
    module: str = ""


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
    frames: list[FrameRecord] = []
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


class Index(Struct, frozen=True):
    """That of a merged wheel."""

    cells: Annotated[list[IndexedCell], Meta(min_length=1, max_length=1000)]
    format: int


def read_manifest(content: bytes, where: str) -> Manifest:
    """Raises OutsideError, which calls it `where`."""
    value = _parsed(content, where)
    if "sha256" in value and not runtime("manifest").is_unchanged(content):  # one without was made by hand
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
