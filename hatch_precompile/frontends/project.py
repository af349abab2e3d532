"""A project's folder as its author wrote it: its backend, and where its entrypoints are configured."""

from __future__ import annotations

import codecs
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatch_precompile.errors import ConfigError

__all__ = [
    "HATCH_TABLE",
    "SETUPTOOLS_TABLE",
    "Project",
    "misnamed_table",
    "read_project",
    "require_read",
    "tables_of",
    "value_at",
]

HATCH_TABLE = "tool.hatch.build.hooks.precompile"
SETUPTOOLS_TABLE = "tool.hatch-precompile"


@dataclass(frozen=True)
class Project:
    """`tables`: those that configure entrypoints, as their author would name them, and what is in them. Of
    several the last one holds."""

    directory: Path
    pyproject: dict[str, Any]
    backend: str
    tables: dict[str, Any]


def read_project(directory: Path) -> Project:
    """The project in a folder. Raises ConfigError where there is none, or its files cannot be read."""
    file = directory / "pyproject.toml"
    if not file.is_file():
        raise ConfigError(f"there is no project in {directory}: it has no pyproject.toml")
    pyproject = _read(file)
    backend = value_at(pyproject, "build-system", "build-backend")
    tables = {
        name: table
        for name, path in (
            (SETUPTOOLS_TABLE, ("tool", "hatch-precompile")),
            (HATCH_TABLE, ("tool", "hatch", "build", "hooks", "precompile")),
            (
                "tool.hatch.build.targets.wheel.hooks.precompile",
                ("tool", "hatch", "build", "targets", "wheel", "hooks", "precompile"),
            ),
        )
        if (table := value_at(pyproject, *path)) is not None
    }
    if (directory / "hatch.toml").is_file():
        own = _read(directory / "hatch.toml")
        for path in (
            ("build", "hooks", "precompile"),
            ("build", "targets", "wheel", "hooks", "precompile"),
        ):
            if (table := value_at(own, *path)) is not None:
                tables["hatch.toml: " + ".".join(path)] = table
    return Project(directory, pyproject, backend if isinstance(backend, str) else "", tables)


def tables_of(project: Project) -> list[tuple[str, dict[str, Any]]]:
    """The tables that configure entrypoints, each with its name. Raises ConfigError where one is no table."""
    hatch_toml = project.directory / "hatch.toml"
    own = _read(hatch_toml) if hatch_toml.is_file() else {}
    found = []
    for name in project.tables:
        place = name.removeprefix("hatch.toml: ")
        table = value_at(own if place != name else project.pyproject, *place.split("."))
        if not isinstance(table, dict):
            raise ConfigError(f"{name}: expected a table")
        found.append((name, table))
    return found


def require_read(project: Project) -> None:
    """Raise ConfigError where the backend reads no table of the project's, or where one replaces another."""
    backend = project.backend.partition(".")[0]
    if misnamed := misnamed_table(project):
        wanted = SETUPTOOLS_TABLE if backend == "setuptools" else HATCH_TABLE
        raise ConfigError(f"{misnamed}: nobody reads a table of this name; call it {wanted}")
    read = [name for name in project.tables if (name == SETUPTOOLS_TABLE) == (backend == "setuptools")]
    if not project.tables or not backend:
        return
    if backend in ("hatchling", "setuptools"):
        if not read:
            wanted = HATCH_TABLE if backend == "hatchling" else SETUPTOOLS_TABLE
            raise ConfigError(
                f"{', '.join(project.tables)}: {backend} does not read this table; call it {wanted}"
            )
        if len(read) > 1:
            raise ConfigError(
                f"{', '.join(read)}: one hook has one table, so only the last is read; keep one"
            )
    elif value_at(project.pyproject, "build-system", "backend-path") is None:
        raise ConfigError(
            f"build-system.build-backend: {project.backend} runs no hook of hatch-precompile; "
            "hatchling.build and setuptools.build_meta do"
        )


def misnamed_table(project: Project) -> str:
    """Where entrypoints are configured under a name that nobody reads, if there is no other table."""
    if project.tables:
        return ""
    found = _tables_with_entrypoints(project.pyproject.get("tool"), "tool")
    return next((name for name in found if "precompile" in name), "")


def _tables_with_entrypoints(table: Any, name: str) -> Iterator[str]:
    if isinstance(table, dict):
        if "entrypoints" in table:
            yield name
        for key, value in table.items():
            yield from _tables_with_entrypoints(value, f"{name}.{key}")


def _read(file: Path) -> dict[str, Any]:
    try:
        content = file.read_bytes()
        if content.startswith(codecs.BOM_UTF8):
            raise ConfigError(
                f"{file} is not valid TOML: it begins with a byte order mark, which no build backend reads; "
                "save it as UTF-8 without one"
            )
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error


def value_at(table: Any, *path: str) -> Any:
    """What a table of TOML holds there; None where there is nothing, or something else on the way."""
    for key in path:
        if not isinstance(table, dict):
            return None
        table = table.get(key)
    return table
