"""The build hook for setuptools: the same table, as `[tool.hatch-precompile]`, and the same wheel.

setuptools calls `finalize` for every distribution that is built where the plugin is installed. Without
the table nothing changes. As in hatch.py, nothing here imports torch or what compiles with it.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setuptools import Distribution
from setuptools.errors import SetupError

from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.events import emit_failure
from hatch_precompile.frontends.common import configuration, earlier_wheel, shard
from hatch_precompile.frontends.project import SETUPTOOLS_TABLE as TABLE
from hatch_precompile.frontends.project import Project, misnamed_table, read_project, require_read
from hatch_precompile.processes import stopping_children
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import package_path, page_path
from hatch_precompile.wheel.layout import require_same
from hatch_precompile.wheel.requirement import requirement
from hatch_precompile.wheel.shim import with_shim
from hatch_precompile.wheel.tag import wheel_tag

__all__ = ["finalize"]

_EARLIER = (
    "What changes files has to do so in the command build_py or build_ext of setuptools, "
    "and not after them or with the finished wheel"
)
_FOR_A_WHEEL = {"bdist_wheel", "dist_info"}


def finalize(dist: Distribution) -> None:
    """Have the commands that make a wheel add the bundle; a source distribution or an editable install
    gets none."""
    if not Path("pyproject.toml").is_file():
        return
    project = read_project(Path())
    table = project.tables.get(TABLE)
    if table is None:
        if (project.tables or misnamed_table(project)) and project.backend.startswith("setuptools."):
            dist.cmdclass["bdist_wheel"] = _refusing(dist.get_command_class("bdist_wheel"), project)
        return
    for name, extend in (("build_py", _build_py), ("bdist_wheel", _bdist_wheel), ("egg_info", _egg_info)):
        dist.cmdclass[name] = extend(dist.get_command_class(name), table)


def _refusing(base: Any, project: Project) -> Any:
    class BdistWheel(base):
        """Makes no wheel without what its author has asked for in a table that is not read here."""

        def run(self) -> None:
            try:
                require_read(project)
            except ConfigError as error:
                emit_failure(error)
                raise SetupError(f"precompile: {error}") from None
            super().run()

    return BdistWheel


def _build_py(base: Any, table: dict[str, Any]) -> Any:
    class BuildPy(base):
        """Adds the bundle to the modules that were copied."""

        def run(self) -> None:
            # A module that an earlier build has added to must be copied again.
            self.force = True
            super().run()
            if getattr(self, "editable_mode", False) or "bdist_wheel" not in self.distribution.commands:
                return
            root = Path(self.build_lib)
            outputs = list(self.get_outputs(False))
            if self.distribution.ext_modules:
                self.run_command("build_ext")  # they are imported while the samples are traced
                outputs += self.get_finalized_command("build_ext").get_outputs()
            files = [Path(file).relative_to(root).as_posix() for file in outputs]
            try:
                self.distribution.precompiled = _add_bundle(root, files, table)
            except (BuildError, OSError) as error:
                emit_failure(error)
                raise SetupError(f"precompile: {error}") from None

    return BuildPy


@dataclass(frozen=True)
class Added:
    """What the wheel needs to know. `tag`: its own; `page`: what to write beside it; `compiled`: see
    `BuiltBundle`."""

    tag: str
    page: str | None
    compiled: dict[str, str]


def _add_bundle(root: Path, files: list[str], table: dict[str, Any]) -> Added:
    """Build, and put the bundle and the line in `__init__` below `root`."""
    from hatch_precompile.build import build_bundle

    config = configuration(table, files, TABLE)
    folder = package_path(config.package)
    init = root / folder / "__init__.py"
    runtime = root / folder / RUNTIME_PACKAGE
    shutil.rmtree(runtime, ignore_errors=True)
    with (
        stopping_children(),
        tempfile.TemporaryDirectory(prefix="hatch-precompile-", ignore_cleanup_errors=True) as work,
    ):
        built = build_bundle(
            config,
            source_roots=[root.resolve()],
            files={file: root.resolve() / file for file in files},
            work=Path(work).resolve(),
            report=_say,
            table=TABLE,
            reuse=earlier_wheel(),
            shard=shard(),
        )
        shutil.copytree(built.directory, runtime, ignore=shutil.ignore_patterns("__pycache__"))
        tag = wheel_tag(built.libraries)
    init.write_bytes(with_shim(init.read_bytes(), config.package))
    return Added(tag, built.page, built.compiled)


def _bdist_wheel(base: Any, _table: dict[str, Any]) -> Any:
    class BdistWheel(base):
        """Tags the wheel with what its libraries need."""

        def finalize_options(self) -> None:
            # What is in the wheel is for one platform, as if it held extension modules.
            self.distribution.has_ext_modules = lambda: True
            super().finalize_options()

        def run(self) -> None:
            super().run()
            added: Added | None = getattr(self.distribution, "precompiled", None)
            if added is None:
                return
            wheel = Path(self.distribution.dist_files[-1][2])
            try:
                require_same(wheel, added.compiled, _EARLIER)
            except BuildError as error:
                wheel.unlink()
                emit_failure(error)
                raise SetupError(f"precompile: {error}") from None
            if added.page is not None:
                path = page_path(_destination(wheel))
                path.write_text(added.page, "utf-8")
                _say(f"the report of the build is {path}")

        def get_tag(self) -> tuple[str, str, str]:
            added: Added | None = getattr(self.distribution, "precompiled", None)
            if added is None:
                return super().get_tag()
            interpreter, abi, platform = added.tag.split("-")
            return interpreter, abi, platform

    return BdistWheel


def _destination(wheel: Path) -> Path:
    """Where a wheel will be. For a front end setuptools makes it in a folder below, which it then removes."""
    folder = wheel.resolve().parent
    return (folder.parent if folder.name.startswith(".tmp-") else folder) / wheel.name


def _egg_info(base: Any, table: dict[str, Any]) -> Any:
    class EggInfo(base):
        """Adds the torch that is built with to what the wheel requires."""

        def run(self) -> None:
            if _FOR_A_WHEEL & set(self.distribution.commands):
                try:
                    self._require_torch()
                except BuildError as error:
                    emit_failure(error)
                    raise SetupError(f"precompile: {error}") from None
            super().run()

        def _require_torch(self) -> None:
            requires = self.distribution.install_requires
            policy = table.get("require-torch", "exact")
            try:
                torch = importlib.metadata.version("torch")
            except importlib.metadata.PackageNotFoundError:
                return  # the build itself says what is missing
            own = requirement(torch, policy, map(str, requires))
            if own is not None and own not in requires:
                requires.append(own)

    return EggInfo


def _say(line: str) -> None:
    sys.stdout.write(f"precompile: {line}\n")
    sys.stdout.flush()
