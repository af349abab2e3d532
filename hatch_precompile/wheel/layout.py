"""A wheel's files laid out before there is a wheel, and whether it holds the same when there is."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from hatch_precompile.errors import BuildError
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import package_path
from hatch_precompile.wheel.shim import with_shim

__all__ = ["contents_of", "digests", "lay_out", "link_others", "require_same"]

_MANY = 5
_PIECE = 1 << 20


def contents_of(package: str, roots: Sequence[Path]) -> dict[str, Path]:
    """The files of a package, by their path in a wheel that has them all.

    Raises BuildError if it is below none of the roots.
    """
    relative = Path(*package.split("."))
    root = next((root for root in roots if (root / relative / "__init__.py").is_file()), None)
    if root is None:
        raise BuildError(f"package: {package} has no __init__.py below {', '.join(map(str, roots))}")
    return {
        file.relative_to(root).as_posix(): file
        for file in (root / relative).rglob("*")
        if file.is_file() and not {"__pycache__", RUNTIME_PACKAGE} & set(file.relative_to(root).parts)
    }


def lay_out(files: Mapping[str, Path], package: str, site: Path) -> None:
    """Links in `site` to what a wheel holds, and the package's `__init__` with the line that installs."""
    init = str(package_path(package) / "__init__.py")
    for path, file in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path == init:
            place.write_bytes(with_shim(file.read_bytes(), package))
        else:
            place.symlink_to(file.resolve())


def link_others(modules: Iterable[str], files: Collection[str], roots: Sequence[Path], folder: Path) -> None:
    """Links in `folder` to the outermost packages of modules that are not in the wheel, as tests are."""
    folder.mkdir(parents=True, exist_ok=True)
    inside = {PurePosixPath(path).parts[0].removesuffix(".py") for path in files}
    for name in {module.partition(".")[0] for module in modules} - inside:
        places = (root / each for root in roots for each in (name, f"{name}.py"))
        found = next((place for place in places if place.exists()), None)
        if found is not None:
            (folder / found.name).symlink_to(found.resolve())


def digests(files: Iterable[str], site: Path) -> dict[str, str]:
    """SHA-256 of each file of a wheel as it is laid out."""
    return {path: _digest((site / path).open("rb")) for path in files}


def require_same(wheel: Path, compiled: Mapping[str, str], remedy: str) -> None:
    """Raise BuildError unless a wheel holds, metadata and bundle aside, the files that were compiled.

    remedy: when such files may be changed, in the words of the backend
    """
    with zipfile.ZipFile(wheel) as archive:
        written = {name: _digest(archive.open(name)) for name in archive.namelist() if _is_content(name)}
    groups = {
        "are another": [name for name in written.keys() & compiled.keys() if written[name] != compiled[name]],
        "were not there": list(written.keys() - compiled.keys()),
        "are no more": list(compiled.keys() - written.keys()),
    }
    found = [f"{_some(names)} {what}" for what, names in groups.items() if names]
    if found:
        raise BuildError(
            f"the wheel is not what was compiled and verified: of its files {', '.join(found)}. {remedy}"
        )


def _is_content(name: str) -> bool:
    parts = PurePosixPath(name).parts
    outside = parts[0].endswith((".dist-info", ".data"))
    return not (name.endswith("/") or outside or RUNTIME_PACKAGE in parts)


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MANY])
    return shown if len(names) <= _MANY else f"{shown} and {len(names) - _MANY} more"


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    with file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
