"""The benchmark models as Hatch projects: written out, built into wheels, installed beside one another."""

from __future__ import annotations

import compileall
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from models import ROOT, BenchModel
from processes import RunError, run_to_log
from ways import BFLOAT16, QUANTIZED

__all__ = ["Project", "install_revision", "unverified"]

PACKAGES = Path(__file__).resolve().parent / "packages"

PYPROJECT = """\
[build-system]
requires = ["hatchling", "hatch-precompile", "torch=={torch}"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0"
requires-python = ">=3.11"
dependencies = [{dependencies}]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.hatch.build.hooks.precompile]
variants = ["native"]

[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "{target}"
name = "{package}"
samples = "{package}.{samples}"
mode = "no_grad"
"""


# A module of a package whose model is another than that of its source: what makes it, and its samples.
REMADE = {
    QUANTIZED: """\
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

from {module} import {function}
from {package}.samples import {samples} as samples


def model():
    made = {function}()
    if not any(isinstance(module, torch.nn.Linear) for module in made.modules()):
        raise RuntimeError("the model has no nn.Linear, which is what torchao quantizes")
    quantize_(made, Int8DynamicActivationInt8WeightConfig())
    return made
""",
    BFLOAT16: """\
import torch

from {module} import {function}
from {package}.samples import {samples} as of_float32


def model():
    return {function}().bfloat16()


def samples():
    for args, kwargs in of_float32():
        yield tuple(x.bfloat16() if torch.is_floating_point(x) else x for x in args), kwargs
""",
}


def install_revision(revision: str, folder: Path) -> None:
    """Install this project's plugin, as it was at a revision, into a folder of its own. Raises RunError."""
    shutil.rmtree(folder, ignore_errors=True)
    run_to_log(
        [
            *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"),
            *("--target", folder, f"git+{ROOT.as_uri()}@{revision}"),
        ],
        folder.with_suffix(".log"),
    )


_UNVERIFIED = """\
[build-system]
requires = ["hatchling", "hatch-precompile", "torch"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.hatch.build.hooks.precompile]
variants = ["{variant}"]
verify = false
"""


def unverified(package: str, variant: str) -> str:
    """The pyproject.toml of a project that compares answers by itself; its entrypoints follow."""
    return _UNVERIFIED.format(name=package.replace("_", "-"), package=package, variant=variant)


@dataclass(frozen=True)
class Project:
    """A benchmark model's project in a folder of its own."""

    model: BenchModel
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """Keys of the entrypoint, beside those that the model says."""
    plugin: Path | None = None
    """The folder that the plugin is in, where that is not this environment's."""

    @property
    def source(self) -> Path:
        """What goes on PYTHONPATH to import the package as its author has it."""
        return self.folder / "project"

    @property
    def installed(self) -> Path:
        """What goes on PYTHONPATH to import the package as its wheel has it."""
        return self.folder / "site"

    def write(self) -> None:
        """Write the project anew."""
        shutil.rmtree(self.source, ignore_errors=True)
        package = self.source / self.model.package
        shutil.copytree(PACKAGES / self.model.package, package, ignore=shutil.ignore_patterns("__pycache__"))
        for name, origin in self.model.copied.items():
            shutil.copyfile(origin, package / name)
        remade = self.settings.get("instance")
        if remade is not None:
            module, _, function = str(self.model.instance).partition(":")
            text = REMADE[remade].format(
                package=self.model.package, module=module, function=function, samples=self.model.samples
            )
            (package / f"{remade}.py").write_text(text)
        (self.source / "pyproject.toml").write_text(self._pyproject())
        # As pip does for what it installs; it must not depend on PYTHONDONTWRITEBYTECODE.
        compileall.compile_dir(package, quiet=1)

    def build(self) -> tuple[Path, float]:
        """The project's wheel and the seconds its build took, from empty inductor caches. Raises RunError."""
        dist, cache = self.folder / "dist", self.folder / "build-cache"
        for folder in (dist, cache):
            shutil.rmtree(folder, ignore_errors=True)
        plugin = {} if self.plugin is None else {"PYTHONPATH": str(self.plugin)}
        seconds = run_to_log(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, self.source],
            self.folder / "build.log",
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache)} | plugin,
        )
        return next(dist.glob("*.whl")), seconds

    def install(self, wheel: Path) -> None:
        """Install the wheel into a folder of its own, leaving this environment as it is. Raises RunError."""
        shutil.rmtree(self.installed, ignore_errors=True)
        run_to_log(
            [sys.executable, "-m", "pip", "install", "--no-deps", "--target", self.installed, wheel],
            self.folder / "install.log",
        )
        if not (self.installed / self.model.package / "_precompiled").is_dir():
            raise RunError(f"{wheel.name} holds no {self.model.package}/_precompiled: the hook did not run")

    def _pyproject(self) -> str:
        torch = version("torch").partition("+")[0]
        requires = (f"torch=={torch}", *self.model.requires)
        remade = self.settings.get("instance")
        text = PYPROJECT.format(
            torch=torch,
            name=self.model.package.replace("_", "-"),
            package=self.model.package,
            target=self.model.target,
            samples=f"{remade}:samples" if remade else f"samples:{self.model.samples}",
            dependencies=", ".join(f'"{requirement}"' for requirement in requires),
        )
        more = {**({"instance": self.model.instance} if self.model.instance else {}), **self.settings}
        if remade is not None:
            more["instance"] = f"{self.model.package}.{remade}:model"
        return text + "".join(f'{key} = "{value}"\n' for key, value in more.items())
