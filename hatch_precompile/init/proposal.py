"""`hatch-precompile init`: a table for a project that has none yet."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import griffe
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hatch_precompile.errors import ConfigError
from hatch_precompile.frontends.project import HATCH_TABLE, SETUPTOOLS_TABLE, Project, value_at
from hatch_precompile.init.sources import ModelClass, Sources, find_models, read_sources

__all__ = ["Proposal", "propose"]

_NO_PACKAGES = frozenset(
    {"benchmarks", "build", "dist", "doc", "docs", "example", "examples", "scripts", "test", "tests", "tools"}
)


@dataclass(frozen=True)
class Proposal:
    """`requires`: what build-system.requires lacks; `unread`: files that are no valid Python.

    `toml`: the table, under a comment about `requires`.
    """

    table: str
    requires: list[str]
    entrypoints: list[dict[str, Any]]
    inner: list[str]
    unread: list[str]
    toml: str

    @property
    def written(self) -> str:
        """The table alone, for a file that is given what it requires."""
        return self.toml.removeprefix(_comment(self.requires))


def propose(project: Project) -> Proposal:
    """A table with an entrypoint for each module class that no other one uses.

    Raises ConfigError where a table is there already, the backend has no hook of ours, or there is no
    such class.
    """
    if project.tables:
        raise ConfigError(f"the project configures entrypoints already, in [{next(iter(project.tables))}]")
    table = _table(project.backend)
    packages = _packages(project)
    if not packages:
        raise ConfigError(f"no import package was found in {project.directory} or its folder src")
    sources = read_sources(packages)
    models = find_models(sources)
    outer = [model for model in models if not model.inner]
    if not outer:
        names = ", ".join(package.name for package in packages)
        raise ConfigError(f"no nn.Module class with a forward was found in {names}")
    entrypoints = [_entrypoint(model, packages[0].name, sources, project.directory) for model in outer]
    inner = [f"{model.module}:{model.name}" for model in models if model.inner]
    requires = _missing_requirements(project, table)
    package = packages[0].name if len(packages) > 1 else None
    toml = _comment(requires) + _toml(table, package, entrypoints, inner)
    return Proposal(table, requires, entrypoints, inner, sources.unread, toml)


def _table(backend: str) -> str:
    if backend.startswith("hatchling"):
        return HATCH_TABLE
    # PEP 517: what a project without a backend is built with.
    if not backend or backend.startswith("setuptools"):
        return SETUPTOOLS_TABLE
    raise ConfigError(
        f"build-system.build-backend is {backend}, and entrypoints are compiled in builds of "
        "hatchling.build and setuptools.build_meta"
    )


def _packages(project: Project) -> list[Path]:
    """The folders of the project's import packages."""
    key = ("tool", "hatch", "build", "targets", "wheel", "packages")
    named = value_at(project.pyproject, *key)
    if named:
        folders = [project.directory / name for name in _strings(named, ".".join(key))]
        return [folder for folder in folders if folder.is_dir()]
    for root in (project.directory / "src", project.directory):
        found = sorted(
            file.parent
            for file in root.glob("*/__init__.py")
            if file.parent.name not in _NO_PACKAGES and file.parent.name.isidentifier()
        )
        if found:
            return found
    return []


def _entrypoint(model: ModelClass, package: str, sources: Sources, directory: Path) -> dict[str, Any]:
    """The keys of one entrypoint, and what its author has to know."""
    lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", model.name).lower()
    found: dict[str, Any] = {
        "target": f"{model.module}:{model.name}",
        "samples": f"{package}.samples:{lower}",
        "forward": model.forward,
        "source": f"{model.file.relative_to(directory)}:{model.line}",
    }
    to_write = []
    if model.required:
        found["needs"] = model.required
        found["instance"] = model.factory or f"{model.module}:make_{lower}"
        if model.factory is None:
            to_write.append("instance")
    if not isinstance(sources.find(f"{package}.samples.{lower}"), griffe.Function):
        to_write.append("samples")
    return {**found, "to_write": to_write}


def _missing_requirements(project: Project, table: str) -> list[str]:
    """What a build needs beyond what build-system.requires lists."""
    listed = value_at(project.pyproject, "build-system", "requires")
    there = {_name(each) for each in _strings(listed, "build-system.requires")}
    own = _strings(value_at(project.pyproject, "project", "dependencies"), "project.dependencies")
    wanted = ["hatch-precompile", _torch(own)]
    if table == HATCH_TABLE:
        wanted = ["hatchling", *wanted]
    else:  # setuptools does not install them for a build
        wanted = ["setuptools", *wanted, *(each for each in own if _name(each) != "torch")]
    return [each for each in wanted if _name(each) not in there]


def _strings(value: Any, key: str) -> list[str]:
    """A list of the file, empty where there is none. Raises ConfigError for anything else."""
    if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise ConfigError(f"{key} is no list of strings")
    return value or []


def _torch(dependencies: list[str]) -> str:
    """A pinned torch: the project's own pin, or the one that is installed here."""
    for each in dependencies:
        if _name(each) == "torch" and re.fullmatch(r"torch\s*==\s*[^,*;\s]+", each):
            return each
    try:
        return f"torch=={Version(importlib.metadata.version('torch')).public}"
    except importlib.metadata.PackageNotFoundError:
        return "torch"


def _name(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return requirement


def _comment(requires: list[str]) -> str:
    if not requires:
        return ""
    pin = " (torch pinned to the version the wheel is for)" if "torch" in requires else ""
    listed = ", ".join(f'"{each}"' for each in requires)
    return f"# build-system.requires needs {listed}{pin}\n"


def _toml(table: str, package: str | None, entrypoints: list[dict[str, Any]], inner: list[str]) -> str:
    lines = [f"[{table}]"]
    if package is not None:
        lines.append(f'package = "{package}"')
    for each in entrypoints:
        lines += ["", f"[[{table}.entrypoints]]", f'target = "{each["target"]}"  # {each["source"]}']
        if "instance" in each:
            needs = f"{each['target'].partition(':')[2]}() needs {', '.join(each['needs'])}"
            what = f"to write: {needs}" if "instance" in each["to_write"] else needs
            lines.append(f'instance = "{each["instance"]}"  # {what}')
        comment = "to write: inputs" if "samples" in each["to_write"] else "inputs"
        lines.append(f'samples = "{each["samples"]}"  # {comment} for forward({", ".join(each["forward"])})')
    if inner:
        lines += ["", f"# Used by these, and so compiled with them: {', '.join(inner)}"]
    return "\n".join(lines) + "\n"
