"""Finding the manifests of finished bundles: in a wheel's file, or in an installed package."""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import importlib.util
import io
import json
import marshal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hatch_precompile.bundle.format import BUNDLE, INDEX, MANIFEST
from hatch_precompile.config import Entrypoint
from hatch_precompile.runtime import runtime

__all__ = [
    "FoundManifest",
    "ManifestError",
    "bytecode_of",
    "entrypoint_names",
    "entrypoints_of",
    "find",
    "find_cells",
    "graph_files",
    "graphs_of",
    "guards_of",
    "importable",
    "verified",
    "with_entrypoint",
]


_FILE = MANIFEST.removeprefix(BUNDLE)
_INDEX_FILE = INDEX.removeprefix(BUNDLE)


class ManifestError(Exception):
    """There is no bundle to read. Its text is a sentence for who asked."""


@dataclass(frozen=True)
class FoundManifest:
    """One bundle's manifest, or that of one cell of a merged wheel, and how large its files are."""

    package: str
    manifest: dict[str, Any]
    sizes: dict[str, int]
    """Bytes by path, as the manifest has them, uncompressed."""
    read: Callable[[str], bytes]
    """The content of such a file."""
    merged: bool = False
    """Whether it is of a merged wheel, where cells share files."""

    @property
    def built_with(self) -> dict[str, str]:
        """As far as the manifest says."""
        found = self.manifest.get("built_with")
        return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}

    @property
    def cell(self) -> str:
        """Such as `cp311-torch2.13.0`; empty where the manifest does not say."""
        built_with = self.built_with
        return (
            str(runtime("manifest").cell_name(built_with)) if {"python", "torch"} <= set(built_with) else ""
        )


def find(wheel_or_package: str, cell: str | None = None) -> list[FoundManifest]:
    """The bundles of a wheel's file or of an installed package, which is not imported. Never empty.

    Of a merged wheel the cell of that name; else the one for this interpreter and the torch that is installed
    here, or one for this interpreter, or the first. Raises ManifestError if there are none or they cannot be
    read.
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
    public, torch = runtime("manifest").public, _torch_here()
    return next(
        (
            each
            for each in cells
            if _is_of_this_python(each) and public(each.built_with.get("torch", "")) == public(torch)
        ),
        None,
    )


def _torch_here() -> str:
    """The version that is installed here; empty if none is."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _is_of_this_python(bundle: FoundManifest) -> bool:
    return bundle.built_with.get("magic") == importlib.util.MAGIC_NUMBER.hex()


def _in_wheel(path: Path) -> list[FoundManifest]:
    if not path.is_file():
        raise ManifestError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as wheel:
            found = list(_in_archive(wheel))
    except zipfile.BadZipFile as error:
        raise ManifestError(f"{path} is not a wheel: {error}") from error
    if not found:
        raise ManifestError(f"{path} holds no bundle: no file in it ends in {MANIFEST} or {INDEX}")
    return found


def _in_archive(wheel: zipfile.ZipFile) -> Iterator[FoundManifest]:
    for name in wheel.namelist():
        if not name.endswith((f"/{MANIFEST}", f"/{INDEX}")):
            continue
        folder = name.rpartition("/")[0] + "/"
        sizes = {
            info.filename.removeprefix(folder): info.file_size
            for info in wheel.infolist()
            if info.filename.startswith(folder)
        }
        package = name.partition(f"/{BUNDLE}")[0].replace("/", ".")
        read = functools.partial(_read, str(wheel.filename), folder)
        yield from _in_bundle(package, folder, sizes, read)


def _read(wheel: str, folder: str, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(folder + name)


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
    return (folder / name).read_bytes()


def _in_bundle(
    package: str, folder: str, sizes: dict[str, int], read: Callable[[str], bytes]
) -> Iterator[FoundManifest]:
    """What a bundle's folder holds: as the runtime reads it, a manifest first."""
    if _FILE in sizes:
        manifest = _parse(read(_FILE), folder + _FILE)
        yield FoundManifest(package, manifest, sizes, read)
        return
    cells = runtime("cells")
    index = _checked(read(_INDEX_FILE), folder + _INDEX_FILE, cells.check_index)
    for each in index:
        name = cells.manifest_of(each["name"])
        if name not in sizes:
            raise ManifestError(f"{folder}{name} is missing")
        manifest = _checked(read(name), folder + name, runtime("manifest").check_manifest)
        places = {path: cells.stored_as(path, digest) for path, digest in manifest["files"].items()}
        places[_FILE] = name
        yield FoundManifest(
            package,
            manifest,
            {path: sizes[place] for path, place in places.items() if place in sizes},
            functools.partial(_read_stored, read, places),
            merged=True,
        )


def _checked(content: bytes, name: str, check: Callable[[Any, str], Any]) -> Any:
    try:
        return check(_parse(content, name), name)
    except runtime("errors").Unfit as error:
        raise ManifestError(str(error)) from None


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


def _parse(content: bytes, name: str) -> dict[str, Any]:
    try:
        manifest = json.loads(content)
    except ValueError as error:
        raise ManifestError(f"{name} is damaged: {error}") from error
    if not isinstance(manifest, dict):
        raise ManifestError(f"{name} is damaged: expected a JSON object")
    return manifest


def entrypoint_names(bundle: FoundManifest) -> list[str]:
    return [entrypoint["name"] for entrypoint in bundle.manifest.get("entrypoints", [])]


def entrypoints_of(found: list[FoundManifest], name: str | None) -> list[tuple[str, Entrypoint]]:
    """What was compiled, or the one of that name: each with its package, as its author configured it, less
    what only a build needs.

    Raises ManifestError for an unknown name, and for a bundle that does not say what makes its samples.
    """
    bundles = found if name is None else with_entrypoint(found, name)
    return [
        (bundle.package, _entrypoint(bundle, record))
        for bundle in bundles
        for record in bundle.manifest.get("entrypoints", [])
        if name in (None, record["name"])
    ]


def _entrypoint(bundle: FoundManifest, record: dict[str, Any]) -> Entrypoint:
    recipe = record.get("recipe")
    if recipe is None:  # of a version before there were recipes
        version = bundle.manifest.get("built_with", {}).get("hatch_precompile")
        raise ManifestError(
            f"the bundle of {bundle.package} does not say what makes the samples of {record['name']}; "
            f"it was built by hatch-precompile {version}"
        )
    return Entrypoint(**recipe, **{key: record[key] for key in ("target", "name", "mode", "activate")})


def graph_files(graph: Mapping[str, Any]) -> dict[str, list[str]]:
    """Variant to the files a graph is called through: its library, or a Python wrapper and its kernels."""
    files = {variant: [path] for variant, path in (graph.get("libraries") or {}).items()}
    for variant, path in (graph.get("python") or {}).items():
        files[variant] = [path, *graph["kernels"][variant]]
    return files


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
        here = f"Python {sys.version_info[0]}.{sys.version_info[1]} with torch {_torch_here()}"
        cells = _cell_names(find_cells(wheel_or_package))
        raise ManifestError(f"{wheel_or_package} has no cell for {here}; it has {cells}")
    path = Path(wheel_or_package)
    if not path.is_file():
        yield found, []
        return
    with tempfile.TemporaryDirectory(prefix="hatch-precompile-") as folder:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
        yield found, [Path(folder)]


def guards_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """The readable guard source of each entry of an entrypoint, by its file."""
    return _texts(bundle, [entry["source"] for entry in _entries(bundle, entrypoint)])


def graphs_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """The graphs an entrypoint runs, as they were captured, by their files."""
    numbers = dict.fromkeys(number for entry in _entries(bundle, entrypoint) for number in entry["graphs"])
    return _texts(bundle, [bundle.manifest["graphs"][number]["readable"] for number in numbers])


def bytecode_of(bundle: FoundManifest, entrypoint: str) -> dict[str, str]:
    """What each entry of an entrypoint runs, disassembled, by entry.

    Raises ManifestError under another Python than the bundle's: marshal reads its own bytecode only.
    """
    magic = bundle.manifest.get("built_with", {}).get("magic")
    if magic != importlib.util.MAGIC_NUMBER.hex():
        raise ManifestError(f"its bytecode is of Python {bundle.manifest['built_with'].get('python')}")
    texts = {}
    for frame in _frames(bundle, entrypoint):
        heads = marshal.loads(verified(bundle, frame["heads"]))
        for number, head in enumerate(heads):
            _, code, _, _ = marshal.loads(head)
            text = io.StringIO()
            dis.dis(code, file=text)
            texts[f"{frame['qualname']}, entry {number}"] = text.getvalue()
    return texts


def _frames(bundle: FoundManifest, entrypoint: str) -> list[dict[str, Any]]:
    numbers = next(each["frames"] for each in bundle.manifest["entrypoints"] if each["name"] == entrypoint)
    return [bundle.manifest["frames"][number] for number in numbers]


def _entries(bundle: FoundManifest, entrypoint: str) -> list[dict[str, Any]]:
    return [entry for frame in _frames(bundle, entrypoint) for entry in frame["entries"]]


def _texts(bundle: FoundManifest, names: list[str]) -> dict[str, str]:
    return {name: verified(bundle, name).decode() for name in names}


def verified(bundle: FoundManifest, name: str) -> bytes:
    """The content of a file, as it was built. Raises ManifestError if it is another."""
    content = bundle.read(name)
    if hashlib.sha256(content).hexdigest() != bundle.manifest["files"].get(name):
        raise ManifestError(f"{name} is damaged: its sha256 is not the manifest's")
    return content
