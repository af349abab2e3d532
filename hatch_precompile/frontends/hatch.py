"""The build hook: it translates between Hatch and the rest of the plugin.

Hatch imports this module in every build of an environment that has the plugin, and asks for
`dependencies()` before torch is there, so nothing here imports torch or what compiles with it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilderConfig
from hatchling.plugin import hookimpl

from hatch_precompile.errors import BuildError
from hatch_precompile.events import emit_failure
from hatch_precompile.frontends.common import configuration, earlier_wheel, shard
from hatch_precompile.frontends.project import read_project, require_read
from hatch_precompile.processes import stopping_children
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import package_path, page_path, source_roots
from hatch_precompile.wheel.layout import require_same
from hatch_precompile.wheel.requirement import requirement
from hatch_precompile.wheel.shim import with_shim
from hatch_precompile.wheel.tag import wheel_tag

if TYPE_CHECKING:
    from hatch_precompile.build import BuiltBundle
    from hatch_precompile.config import Config

__all__ = ["PrecompileBuildHook", "hatch_register_build_hook"]

_EARLIER = "What changes files has to run before this hook: put its table above this one's"
_NOT_FOUND = ("No module named", "cannot import name", "No such file or directory")


class PrecompileBuildHook(BuildHookInterface[WheelBuilderConfig]):
    """Adds a bundle to the project's wheel. An sdist or an editable install gets none."""

    PLUGIN_NAME = "precompile"

    _work: tempfile.TemporaryDirectory[str] | None = None
    _signals: contextlib.ExitStack | None = None
    _page: str | None = None
    _compiled: dict[str, str] | None = None

    def dependencies(self) -> list[str]:
        """The project's own dependencies: its code runs in the build environment."""
        return list(self.metadata.core.dependencies) if self.target_name == "wheel" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version != "standard":
            self.app.display_info(f"precompile: nothing is compiled for an {version} install")
            return
        # As long as the folder is there: what is in it is packed after this.
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(stopping_children())
        try:
            self._add_bundle(build_data)
        except (BuildError, OSError) as error:
            self._remove_work()
            self._abort(BuildError(f"{error}{self._about_later_hooks(str(error))}"))
        except BaseException:
            self._remove_work()
            raise

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._remove_work()
        if self._compiled is not None:
            self._require_what_was_compiled(Path(artifact_path))
        if self._page is not None:
            path = page_path(Path(artifact_path))
            path.write_text(self._page, "utf-8")
            self.app.display_info(f"precompile: the report of the build is {path}")

    def _add_bundle(self, build_data: dict[str, Any]) -> None:
        require_read(read_project(Path(self.root)))
        files = self._files(build_data)
        config = configuration(self.config, files, self._table_name())
        init = self._init_file(config.package, files)
        dependencies = self.metadata.core.dependencies
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # which the build itself says
            requirement(importlib.metadata.version("torch"), config.require_torch, dependencies)
        work = self._make_work()
        (work / "source").mkdir()
        built = self._build(config, files, source_roots(files, work / "source"), work)
        self._page, self._compiled = built.page, built.compiled
        own_requirement = requirement(built.torch_version, config.require_torch, dependencies)
        if own_requirement is not None:
            build_data["dependencies"].append(own_requirement)
            # pyproject.toml says what a project requires, and uv does not ask again after the build.
            self.app.display_info(
                f"precompile: the wheel requires {own_requirement}; for installs from source by uv, "
                "name it in dependencies, too"
            )
        build_data["tag"] = wheel_tag(built.libraries)
        build_data["pure_python"] = False
        self._include(build_data, built.directory, config.package, init, work)

    def _require_what_was_compiled(self, wheel: Path) -> None:
        """A hook that runs after this one may have changed what is packed."""
        try:
            require_same(wheel, self._compiled or {}, _EARLIER)
        except BuildError as error:
            wheel.unlink()
            self._abort(error)

    def _abort(self, error: BuildError) -> None:
        emit_failure(error)
        # Ends the process with a status of 1: a traceback would bury the sentence.
        self.app.abort(f"precompile: {error}")

    def _about_later_hooks(self, problem: str) -> str:
        """Those may make what was not found."""
        names = list(self.build_config.hook_config)
        later = names[names.index(self.PLUGIN_NAME) + 1 :]
        if not later or not any(sign in problem for sign in _NOT_FOUND):
            return ""
        return (
            f"\n  Hooks that run after this one: {', '.join(later)}. If one makes what was not found, "
            "put its table above this one's: Hatch runs hooks in the order of their tables"
        )

    def _build(self, config: Config, files: dict[str, Path], roots: list[Path], work: Path) -> BuiltBundle:
        from hatch_precompile.build import build_bundle

        directory = work / "bundle"
        directory.mkdir()
        return build_bundle(
            config,
            source_roots=roots,
            files=files,
            work=directory,
            report=self.app.display_info,
            table=self._table_name(),
            root=Path(self.root),
            reuse=earlier_wheel(),
            shard=shard(),
        )

    def _files(self, build_data: dict[str, Any]) -> dict[str, Path]:
        """What the wheel holds without us, by path in the wheel; other hooks may have added to it."""
        with self.build_config.set_build_data(build_data):
            included = list(self.build_config.builder.recurse_included_files())
        return {Path(file.distribution_path).as_posix(): Path(file.path) for file in included}

    def _init_file(self, package: str, files: dict[str, Path]) -> Path:
        """The file that becomes the package's `__init__.py`."""
        folder = package_path(package)
        init = files[f"{folder}/__init__.py"]
        if str(init) in self.build_config.force_include:
            raise BuildError(
                f"{init} is force-included as {folder}/__init__.py, and a line has to be added to that; "
                "force-include the folder it is in"
            )
        return init

    def _include(
        self, build_data: dict[str, Any], bundle: Path, package: str, init: Path, work: Path
    ) -> None:
        # hatchling leaves out the project's file where a forced one, named file by file and from outside
        # the project, has the same path in the wheel. That is how this __init__ takes the other's place.
        folder = package_path(package)
        shimmed = work / "__init__.py"
        shimmed.write_bytes(with_shim(init.read_bytes(), package))
        shutil.copymode(init, shimmed)
        build_data["force_include"][str(shimmed)] = self._target(f"{folder}/__init__.py")
        for file in sorted(path for path in bundle.rglob("*") if path.is_file()):
            if file.parent.name == "__pycache__":  # left by running the bundle to verify it
                continue
            path = folder / RUNTIME_PACKAGE / file.relative_to(bundle).as_posix()
            build_data["force_include"][str(file)] = self._target(str(path))

    def _target(self, path: str) -> str:
        """The target that force-includes a file at `path`; hatchling applies `sources` to targets too."""
        candidates = [path]
        for source, replacement in self.build_config.sources.items():
            if path.startswith(replacement):
                candidates.append(source + path.removeprefix(replacement))
        for candidate in candidates:
            if self.build_config.get_distribution_path(candidate) == path:
                return candidate
        raise BuildError(f"{path} cannot be added to the wheel: the table `sources` maps nothing to it")

    def _table_name(self) -> str:
        """Where the author wrote the configuration."""
        in_target = self.PLUGIN_NAME in self.build_config.target_config.get("hooks", {})
        hooks = "build.targets.wheel.hooks" if in_target else "build.hooks"
        # Hatch merges the tables of hatch.toml over those of pyproject.toml.
        hatch_toml = Path(self.root, "hatch.toml")
        if hatch_toml.is_file() and "build" in tomllib.loads(hatch_toml.read_text("utf-8")):
            return f"hatch.toml: {hooks}.{self.PLUGIN_NAME}"
        return f"tool.hatch.{hooks}.{self.PLUGIN_NAME}"

    def _make_work(self) -> Path:
        self._work = tempfile.TemporaryDirectory(prefix="hatch-precompile-", ignore_cleanup_errors=True)
        work = Path(self._work.name).resolve()
        if work.is_relative_to(Path(self.root).resolve()):
            raise BuildError(
                f"the folder for temporary files, {work.parent}, is inside the project; "
                "set TMPDIR to one that is not"
            )
        return work

    def _remove_work(self) -> None:
        if self._work is not None:
            self._work.cleanup()
            self._work = None
        if self._signals is not None:
            self._signals.close()
            self._signals = None


@hookimpl
def hatch_register_build_hook() -> type[PrecompileBuildHook]:
    return PrecompileBuildHook
