"""A wheel works wherever its files end up: other folders, other installers, other owners."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site
from tests.wheel.conftest import Built, run

USE = """
import torch, kiosk, probe
x = torch.randn(6)
with torch.no_grad():
    torch.testing.assert_close(kiosk.tint(x), torch.sigmoid(x) * 2)
status = probe.status("tint", "kiosk")
probe.result(hits=status["hits"], misses=status["misses"], imported=probe.compilers(), file=kiosk.__file__)
"""


@pytest.fixture(scope="module")
def wheel(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel, alone: the tree it was built from is not where it was."""
    wheel = tmp_path_factory.mktemp("alone") / built.wheel.name
    shutil.copy(built.wheel, wheel)
    away = built.project.with_name("elsewhere")
    built.project.rename(away)
    yield wheel
    away.rename(built.project)


def by_pip(wheel: Path, site: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)


def by_uv(wheel: Path, site: Path, *options: str) -> None:
    uv = shutil.which("uv", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    if uv is None:
        pytest.skip("uv is not installed")
    python = ("--python", sys.executable, "--offline", "--no-cache")
    run(uv, "pip", "install", *python, *options, "--no-deps", "--target", site, wheel)


def by_uv_with_bytecode(wheel: Path, site: Path) -> None:
    by_uv(wheel, site, "--compile-bytecode")
    assert list(site.rglob("_precompiled/__pycache__/*.pyc"))


def unzipped(wheel: Path, site: Path) -> None:
    zipfile.ZipFile(wheel).extractall(site)


def copied_into_an_image(wheel: Path, site: Path) -> None:
    """Files as a layer of an image has them: another owner, one time for all, nothing writable."""
    by_pip(wheel, site.with_name("before"))
    shutil.copytree(site.with_name("before"), site, copy_function=shutil.copyfile)
    for path in (*site.rglob("*"), site):
        os.utime(path, (0, 0))
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        path.chmod(0o555 if path.is_dir() else 0o444)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "pip --target": by_pip,
    "uv": by_uv,
    "uv with bytecode compilation": by_uv_with_bytecode,
    "unzipped": unzipped,
    "copied into an image": copied_into_an_image,
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_served_wherever_and_however_it_was_installed(wheel: Path, tmp_path: Path, way: str) -> None:
    site = tmp_path / "a folder, with a space" / "site"
    site.parent.mkdir()
    WAYS[way](wheel, site)
    seen: dict[str, Any] = Site(site).run(USE).result
    assert seen == {"hits": 1, "misses": 0, "imported": [], "file": str(site / "kiosk/__init__.py")}
    if way == "copied into an image":
        for path in (site, *site.rglob("*/")):  # so that it can be removed
            path.chmod(0o755)


def test_two_versions_in_two_environments(wheel: Path, tmp_path: Path) -> None:
    """A second version of the same package: each process has what its own environment has."""
    second = tmp_path / wheel.name.replace("1.0", "2.0")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(second, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(("METADATA", "RECORD")):
                for before in (b"kiosk-1.0", b"Version: 1.0"):
                    content = content.replace(before, before.replace(b"1.0", b"2.0"))
            new.writestr(name.replace("kiosk-1.0", "kiosk-2.0"), content)
    code = USE.replace("probe.result(", 'probe.result(version=importlib.metadata.version("kiosk"), ')
    code = f"import importlib.metadata\n{code}"
    for version, file in {"1.0": wheel, "2.0": second}.items():
        by_pip(file, tmp_path / version)
    for version in ("1.0", "2.0"):
        seen = Site(tmp_path / version).run(code).result
        assert (seen["version"], seen["hits"]) == (version, 1)
