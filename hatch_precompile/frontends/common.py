"""What both hooks ask of a wheel before a bundle goes into it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hatch_precompile.config import Config, load
from hatch_precompile.config.cells import Shard
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import import_packages, package_path

__all__ = ["REUSE", "SHARD", "configuration", "earlier_wheel", "shard"]

# The variables of the environment by which `hatch-precompile build`, or a user of another front end, tells a
# hook what is no matter of the configuration.
REUSE = "HATCH_PRECOMPILE_REUSE"
SHARD = "HATCH_PRECOMPILE_SHARD"


def earlier_wheel() -> Path | None:
    """The wheel to take over from."""
    name = os.environ.get(REUSE)
    return Path(name) if name else None


def shard() -> Shard | None:
    """Which part of the entrypoints to build. Raises ConfigError where the variable says no such thing."""
    text = os.environ.get(SHARD)
    try:
        return Shard.read(text) if text else None
    except ConfigError as error:
        raise ConfigError(f"{SHARD}: {error}") from None


def configuration(table: Mapping[str, Any], files: Collection[str], where: str) -> Config:
    """The table, for a wheel with these files; where: what the author calls the table.

    Raises BuildError where the package has no `__init__` that could install a bundle, or has something of
    the bundle's name already.
    """
    packages = import_packages(files)
    if "package" not in table and len(packages) != 1:
        raise ConfigError(f"{where}.package: {_no_package(files, packages)}")
    config = load(table, default_package=packages[0] if len(packages) == 1 else None, prefix=where)
    folder = package_path(config.package)
    added = folder / RUNTIME_PACKAGE
    if f"{added}.py" in files or any(file.startswith(f"{added}/") for file in files):
        raise BuildError(
            f"the project already has {added}, the name of what is added to the wheel; "
            "remove it, or rename it if it is your own"
        )
    if f"{folder}/__init__.py" not in files:
        raise BuildError(
            f"the wheel holds no {folder}/__init__.py, and a bundle is installed when that runs; "
            f"add one, or name another package as {where}.package"
        )
    return config


def _no_package(files: Collection[str], packages: Sequence[str]) -> str:
    """Why it is not known which package carries the bundle, and what to do."""
    if packages:
        return f"the wheel holds {' and '.join(packages)}; name the package that carries the bundle"
    modules = [PurePosixPath(file) for file in files if file.endswith(".py")]
    flat = next((module for module in modules if len(module.parts) == 1), None)
    if flat is not None:
        return (
            f"the wheel holds the module {flat}, and only a package can carry a bundle; "
            f"make it {flat.stem}/__init__.py"
        )
    if modules:
        folder = modules[0].parts[0]
        return f"the wheel holds {folder} without an __init__.py, which would install the bundle; add one"
    return "the wheel holds no Python file; look at what the build includes in it"
