"""The cells that a project's matrix asks for, read without building anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_precompile.config import load
from hatch_precompile.config.cells import Cell, Shard, cells_of
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.frontends.project import Project
from hatch_precompile.machine import require_known_torch, require_known_version

__all__ = ["Plan", "plan_of", "requirements_of"]


@dataclass(frozen=True)
class Plan:
    """What is to be built: every cell, or shard of one, each for all of the variants. `entrypoints`: their
    names."""

    cells: list[Cell]
    variants: list[str]
    entrypoints: list[str]

    def entrypoints_of(self, cell: Cell) -> list[str]:
        """The names of those that the wheel of a cell, or of a shard, has."""
        return list(cell.shard.part(self.entrypoints)) if cell.shard else self.entrypoints

    def cell(self, name: str) -> Cell:
        """The cell of this name, or the shard of one. Raises ConfigError where there is none."""
        for cell in self.cells:
            if cell.name == name:
                return cell
            if not cell.shard and name.startswith(f"{cell.name}-"):
                return replace(cell, shard=_shard(name.removeprefix(f"{cell.name}-"), len(self.entrypoints)))
        names = ", ".join(cell.name for cell in self.cells)
        raise ConfigError(f"the matrix has no cell {name}; it has {names}")


def _shard(text: str, entrypoints: int) -> Shard:
    shard = Shard.read(text)
    if shard.of > entrypoints:
        raise ConfigError(f"there cannot be {shard.of} shards of {entrypoints} entrypoints")
    return shard


def plan_of(project: Project, shards: int = 1) -> Plan:
    """shards: into how many each cell is split; never more than there are entrypoints.

    Raises ConfigError where the table is wrong or has no matrix, where a Python or torch of it is not known,
    or where the requirements of the build exclude a torch of it.
    """
    if not project.tables:
        raise ConfigError(f"the project in {project.directory} configures no entrypoints")
    where, table = list(project.tables.items())[-1]
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table")
    # Which package carries the bundle is in no cell, and only the wheel tells it where it is left out.
    config = load(table, default_package="package", prefix=where)
    if config.matrix is None:
        raise ConfigError(
            f"{where}.matrix: expected a table such as "
            '{ python = ["3.12"], torch = ["2.13.0"] }, but the key is missing'
        )
    names = [entrypoint.name for entrypoint in config.entrypoints]
    cells = cells_of(config.matrix, min(shards, len(names)))
    _check_known(where, cells)
    _check_requirements(project, cells)
    return Plan(cells, list(config.variants), names)


def _check_known(where: str, cells: list[Cell]) -> None:
    """Before an environment is made for one: its build would say the same."""
    for cell in cells:
        for key, require, version in (
            ("python", require_known_version, cell.python),
            ("torch", require_known_torch, cell.torch),
        ):
            try:
                require(version)
            except BuildError as error:
                raise ConfigError(f"{where}.matrix.{key}: {error}") from None


def _check_requirements(project: Project, cells: list[Cell]) -> None:
    for text in requirements_of(project):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # the front end has a sentence for it
        if canonicalize_name(requirement.name) != "torch":
            continue
        for cell in cells:
            # A marker may tell Pythons apart.
            asked = requirement.marker is None or requirement.marker.evaluate(
                {"python_version": cell.python, "python_full_version": f"{cell.python}.0"}
            )
            if asked and not requirement.specifier.contains(cell.torch, prereleases=True):
                raise ConfigError(
                    f"build-system.requires: {requirement} excludes torch {cell.torch} of the matrix; "
                    "give torch a range that holds all of them"
                )


def requirements_of(project: Project) -> list[str]:
    """What build-system.requires lists."""
    system = project.pyproject.get("build-system")
    requires = system.get("requires", []) if isinstance(system, dict) else []
    return [text for text in requires if isinstance(text, str)] if isinstance(requires, list) else []
