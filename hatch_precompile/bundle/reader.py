"""Finding the manifests of finished bundles: in a wheel's file, or in an installed package."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import UNSET

from hatch_precompile.backends import known
from hatch_precompile.bundle.format import BUNDLE, INDEX, MANIFEST
from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import BuildError, OutsideError
from hatch_precompile.runtime import cells as merged_cells
from hatch_precompile.runtime import manifest as manifests
from hatch_precompile.validation.code import disassembled, split_heads
from hatch_precompile.validation.manifest_rules import check_manifest, configured
from hatch_precompile.validation.manifests import (
    BundledEntry,
    BundledFrame,
    EntrypointRecord,
    Manifest,
    read_index,
    read_manifest,
)
from hatch_precompile.validation.wheels import members, open_wheel, read_member, reading

__all__ = [
    "FoundManifest",
    "ManifestError",
    "bytecode_of",
    "entrypoint_names",
    "entrypoints_of",
    "find",
    "find_cells",
    "graphs_of",
    "guards_of",
    "heads_of",
    "importable",
    "for_gpus",
    "only_for_gpus",
    "torch_here",
    "verified",
    "with_entrypoint",
]


_FILE = MANIFEST.removeprefix(BUNDLE)
_INDEX_FILE = INDEX.removeprefix(BUNDLE)


class ManifestError(BuildError):
    """There is no bundle to read. Its text is a sentence for who asked."""


@dataclass(frozen=True)
class FoundManifest:
    """One bundle's manifest, or that of one cell of a merged wheel, and how large its files are."""

    package: str
    where: str
    """The manifest's file, for messages."""
    manifest: Manifest
    """As far as it says: of another format than this plugin writes, much may be missing."""
    content: bytes
    """The manifest's file as it is stored."""
    sizes: dict[str, int]
    """Bytes by path, as the manifest has them, uncompressed."""
    read: Callable[[str], bytes]
    """The content of such a file."""
    merged: bool = False
    """Whether it is of a merged wheel, where cells share files."""

    @property
    def whole(self) -> Manifest:
        """The manifest, if a build of this format may have written it. Raises OutsideError."""
        check_manifest(self.manifest, self.where)
        return self.manifest

    @property
    def built_with(self) -> dict[str, str]:
        """As far as the manifest says."""
        return self.manifest.built_with

    @property
    def cell(self) -> str:
        """Such as `cp311-torch2.13.0`; empty where the manifest does not say."""
        built_with = self.built_with
        return manifests.cell_name(built_with) if {"python", "torch"} <= set(built_with) else ""


def find(wheel_or_package: str, cell: str | None = None) -> list[FoundManifest]:
    """The bundles of a wheel's file or of an installed package, which is not imported. Never empty.

    Of a merged wheel the cell of that name; else the one for this interpreter and the torch that is installed
    here, or one for this interpreter, or the first. Raises ManifestError if there are none, OutsideError if
    they cannot be read.
    """
    found = find_cells(wheel_or_package)
    if cell is not None and cell not in [each.cell for each in found]:
        raise ManifestError(f"{wheel_or_package} has no cell {cell}; it has {_cell_names(found)}")
    packages = dict.fromkeys(each.package for each in found)
    chosen = [_chosen([each for each in found if each.package == package], cell) for package in packages]
    return [each for each in chosen if each is not None]


def find_cells(wheel_or_package: str) -> list[FoundManifest]:
    """All there are: each cell of a merged wheel, by Python and torch. Raises ManifestError as `find`."""
    path = Path(wheel_or_package)
    if path.suffix == ".whl" or path.is_file():
        return _in_wheel(path)
    return _in_package(wheel_or_package)


def _cell_names(found: Iterable[FoundManifest]) -> str:
    return ", ".join(dict.fromkeys(each.cell for each in found))


def _chosen(cells: list[FoundManifest], name: str | None) -> FoundManifest | None:
    if name is not None:
        return next((each for each in cells if each.cell == name), None)
    return _for_here(cells) or next((each for each in cells if _is_of_this_python(each)), cells[0])


def _for_here(cells: list[FoundManifest]) -> FoundManifest | None:
    """The cell that the runtime picks here."""
    public, torch = manifests.public, torch_here()
    fitting = [
        each
        for each in cells
        if _is_of_this_python(each) and public(each.built_with.get("torch", "")) == public(torch)
    ]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return fitting[merged_cells.nearest([each.built_with.get("cuda") for each in fitting], _cuda_here())]


def torch_here() -> str:
    """The version that is installed here; empty if none is."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _cuda_here() -> str | None:
    """For which CUDA the torch that is installed here is built, which is not imported for it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*= *['\"]([0-9.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _is_of_this_python(bundle: FoundManifest) -> bool:
    return bundle.built_with.get("magic") == importlib.util.MAGIC_NUMBER.hex()


def _in_wheel(path: Path) -> list[FoundManifest]:
    if not path.is_file():
        raise ManifestError(f"there is no file {path}")
    with open_wheel(path) as wheel:
        found = list(_in_archive(path, wheel))
    if not found:
        raise ManifestError(f"{path} holds no bundle: no file in it ends in {MANIFEST} or {INDEX}")
    return found


def _in_archive(path: Path, wheel: zipfile.ZipFile) -> Iterator[FoundManifest]:
    sizes = {info.filename: info.file_size for info in members(path, wheel)}
    folders = dict.fromkeys(
        name.rpartition("/")[0] + "/" for name in sizes if name.endswith((f"/{MANIFEST}", f"/{INDEX}"))
    )
    for folder in folders:
        own = {name.removeprefix(folder): size for name, size in sizes.items() if name.startswith(folder)}
        package = folder.partition(f"/{BUNDLE}")[0].replace("/", ".")
        yield from _in_bundle(package, folder, own, functools.partial(_read, path, folder))


def _read(wheel: Path, folder: str, name: str) -> bytes:
    with open_wheel(wheel) as archive:
        return read_member(wheel, archive, folder + name)


def _in_package(package: str) -> list[FoundManifest]:
    for folder in _package_folders(package):
        bundle = Path(folder, BUNDLE)
        sizes = {
            file.relative_to(bundle).as_posix(): file.stat().st_size
            for file in bundle.rglob("*")
            if file.is_file() and file.parent.name != "__pycache__"  # written by installers
        }
        if {_FILE, _INDEX_FILE} & set(sizes):
            read = functools.partial(_read_below, bundle)
            return list(_in_bundle(package, f"{bundle}/", sizes, read))
    raise ManifestError(
        f"the installed package {package} carries no bundle; an editable install or an sdist never does"
    )


def _read_below(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise OutsideError(f"{folder / name} cannot be read: {error.strerror or error}") from error


def _in_bundle(
    package: str, folder: str, sizes: dict[str, int], read: Callable[[str], bytes]
) -> Iterator[FoundManifest]:
    """What a bundle's folder holds: as the runtime reads it, a manifest first."""
    if _FILE in sizes:
        content = read(_FILE)
        manifest = read_manifest(content, folder + _FILE)
        yield FoundManifest(package, folder + _FILE, manifest, content, sizes, read)
        return
    index = read_index(read(_INDEX_FILE), folder + _INDEX_FILE)
    if not all(merged_cells.is_name(each.name) for each in index.cells):
        raise OutsideError(f"{folder}{_INDEX_FILE} is damaged: it has what is no name of a cell")
    for each in index.cells:
        name = merged_cells.manifest_of(each.name)
        if name not in sizes:
            raise OutsideError(f"{folder}{name} is missing")
        content = read(name)
        manifest = read_manifest(content, folder + name)
        check_manifest(manifest, folder + name)
        places = {path: merged_cells.stored_as(path, digest) for path, digest in manifest.files.items()}
        places[_FILE] = name
        own = {path: sizes[place] for path, place in places.items() if place in sizes}
        stored = functools.partial(_read_stored, read, places)
        yield FoundManifest(package, folder + name, manifest, content, own, stored, merged=True)


def _read_stored(read: Callable[[str], bytes], places: dict[str, str], name: str) -> bytes:
    return read(places[name])


def _package_folders(package: str) -> list[str]:
    """Where the package lies, found part by part: looking up a dotted name in one go imports its parents."""
    top, *rest = package.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        raise ManifestError(f"{package!r} is neither a wheel's file nor the name of an import package")
    name = top
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.submodule_search_locations is None:
        raise ManifestError(
            f"no package {package} is installed in this environment, and there is no such file"
        )
    return list(spec.submodule_search_locations)


def entrypoint_names(bundle: FoundManifest) -> list[str]:
    return [entrypoint.name for entrypoint in bundle.manifest.entrypoints]


def entrypoints_of(found: list[FoundManifest], name: str | None) -> list[tuple[str, Entrypoint]]:
    """What was compiled for CPUs, or the one of that name: each with its package, as its author configured
    it, less what only a build needs.

    Raises ManifestError for an unknown name, one that is for GPUs only, and a bundle that does not say what
    makes its samples.
    """
    bundles = found if name is None else with_entrypoint(found, name)
    if name is not None and name in only_for_gpus(bundles):
        raise ManifestError(f"{name} is compiled for GPUs only, and is called on CPUs here")
    return [
        (bundle.package, _entrypoint(bundle, record))
        for bundle in bundles
        for record in bundle.manifest.entrypoints
        if name in (None, record.name) and record.name not in only_for_gpus([bundle])
    ]


def for_gpus(found: list[FoundManifest], name: str | None) -> list[tuple[str, Entrypoint, list[str]]]:
    """What was compiled for GPUs, or the one of that name: with its package and the variants, the highest
    last."""
    return [
        (bundle.package, _entrypoint(bundle, record), [each for each in known("cuda") if each in variants])
        for bundle in found
        for record in bundle.manifest.entrypoints
        if name in (None, record.name)
        and (
            variants := {
                each.gpu.variant
                for n in record.frames
                for each in bundle.manifest.frames[n].entries
                if each.gpu is not UNSET
            }
        )
    ]


def only_for_gpus(found: list[FoundManifest]) -> list[str]:
    """The names of entrypoints that have no entry for CPUs."""
    return [
        record.name
        for bundle in found
        for record in bundle.manifest.entrypoints
        if (entries := [each for n in record.frames for each in bundle.manifest.frames[n].entries])
        and all(each.gpu is not UNSET for each in entries)
    ]


def _entrypoint(bundle: FoundManifest, record: EntrypointRecord) -> Entrypoint:
    if record.recipe is None:  # of a version before there were recipes
        version = bundle.built_with.get("hatch_precompile")
        raise ManifestError(
            f"the bundle of {bundle.package} does not say what makes the samples of {record.name}; "
            f"it was built by hatch-precompile {version}"
        )
    return configured(record, bundle.where)


def with_entrypoint(found: list[FoundManifest], name: str) -> list[FoundManifest]:
    """The bundles that have an entrypoint of that name. Raises ManifestError if there is none."""
    having = [bundle for bundle in found if name in entrypoint_names(bundle)]
    if not having:
        known = ", ".join(known for bundle in found for known in entrypoint_names(bundle)) or "none"
        raise ManifestError(f"there is no entrypoint {name!r}; there are: {known}")
    return having


@contextlib.contextmanager
def importable(wheel_or_package: str) -> Iterator[tuple[list[FoundManifest], list[Path]]]:
    """The bundles of a wheel's file or an installed package, and where they can be imported from.

    A wheel is unpacked to a folder that is gone afterwards; for a package that is installed there is
    nothing to add to what is importable already. Raises ManifestError also where there is no torch, and where
    no cell of a merged wheel fits.
    """
    found = find(wheel_or_package)
    if importlib.util.find_spec("torch") is None:
        raise ManifestError(f"torch is not installed here, and what {wheel_or_package} carries needs it")
    if any(each.merged and _for_here([each]) is None for each in found):
        here = f"Python {sys.version_info[0]}.{sys.version_info[1]} with torch {torch_here()}"
        cells = _cell_names(find_cells(wheel_or_package))
        raise ManifestError(f"{wheel_or_package} has no cell for {here}; it has {cells}")
    path = Path(wheel_or_package)
    if not path.is_file():
        yield found, []
        return
    with tempfile.TemporaryDirectory(prefix="hatch-precompile-") as folder:
        with open_wheel(path) as wheel, reading(path):
            wheel.extractall(folder, members(path, wheel))
        yield found, [Path(folder)]


def guards_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """The readable guard source of each entry of an entrypoint, by its file."""
    return _texts(bundle, [entry.source for entry in _entries(bundle, entrypoint)])


def graphs_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """The graphs an entrypoint runs, as they were captured, by their files."""
    numbers = dict.fromkeys(number for entry in _entries(bundle, entrypoint) for number in entry.graphs)
    return _texts(bundle, [bundle.manifest.graphs[number].readable for number in numbers])


def bytecode_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """What each entry of an entrypoint runs, disassembled by another process, by entry.

    Raises ManifestError under another Python than the bundle's: marshal reads its own bytecode only.
    """
    if not _is_of_this_python(bundle):
        raise ManifestError(f"its bytecode is of Python {bundle.built_with.get('python')}")
    texts = {}
    for frame in _frames(bundle, entrypoint):
        for number, text in enumerate(disassembled(heads_of(bundle, frame), frame.heads)):
            texts[f"{frame.qualname}, entry {number}"] = text
    return texts


def heads_of(bundle: FoundManifest, frame: BundledFrame) -> list[bytes]:
    """Those of a frame's entries, in their order. Raises OutsideError where they are damaged, or were not
    built with this manifest."""
    heads, seal = split_heads(verified(bundle, frame.heads), frame.heads)
    if seal != manifests.seal_of(manifests.parsed(bundle.content, bundle.where)):
        raise OutsideError(f"{bundle.where} is damaged: it is not the one that {frame.heads} was built with")
    if len(heads) != len(frame.entries):
        raise OutsideError(f"{frame.heads} is damaged: it has {len(heads)} heads of {len(frame.entries)}")
    return heads


def _frames(bundle: FoundManifest, entrypoint: str) -> list[BundledFrame]:
    manifest = bundle.whole
    record = manifest.entrypoint(entrypoint)
    return [manifest.frames[number] for number in record.frames] if record is not None else []


def _entries(bundle: FoundManifest, entrypoint: str) -> list[BundledEntry]:
    return [entry for frame in _frames(bundle, entrypoint) for entry in frame.entries]


def _texts(bundle: FoundManifest, names: list[str]) -> dict[str, str]:
    return {name: verified(bundle, name).decode("utf-8", "replace") for name in names}


def verified(bundle: FoundManifest, name: str) -> bytes:
    """The content of a file, as it was built. Raises OutsideError if it is another."""
    content = bundle.read(name)
    if hashlib.sha256(content).hexdigest() != bundle.manifest.files.get(name):
        raise OutsideError(f"{name} is damaged: its sha256 is not the manifest's")
    return content
