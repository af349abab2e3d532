"""What a wheel holds: its packages, and where their sources are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

__all__ = ["import_packages", "package_path", "page_path", "source_roots"]


def package_path(package: str) -> PurePosixPath:
    """`ns.textmodel` -> `ns/textmodel`."""
    return PurePosixPath(*package.split("."))


def page_path(wheel: Path) -> Path:
    """Where the report of the build goes: beside the wheel, under its name."""
    return wheel.with_suffix(".report.html")


def import_packages(files: Iterable[str]) -> list[str]:
    """The import packages among the paths of a wheel: the outermost folders with an `__init__.py`."""
    folders = {PurePosixPath(file).parent for file in files if PurePosixPath(file).name == "__init__.py"}
    return sorted(
        ".".join(folder.parts) for folder in folders if folder.parts and folders.isdisjoint(folder.parents)
    )


def source_roots(files: Mapping[str, Path], stage: Path) -> list[Path]:
    """The folders to import the project's modules from, given which file becomes which path of the wheel.

    A file that keeps its path below some folder is imported from there: the project's root, or its
    `src`. If one does not (Hatch's `sources` can rename folders), all are linked into `stage` as the
    wheel will have them, and that is the only root.
    """
    modules = {path: file for path, file in files.items() if path.endswith(".py")}
    roots = []
    for path, file in modules.items():
        depth = len(PurePosixPath(path).parts)
        if file.parts[-depth:] != PurePosixPath(path).parts:
            return [_staged(files, stage)]
        roots.append(file.parents[depth - 1])
    return list(dict.fromkeys(roots))


def _staged(files: Mapping[str, Path], stage: Path) -> Path:
    for path, file in files.items():
        link = stage / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return stage
