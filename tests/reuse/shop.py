"""The shop, built, and packed as the wheel that a front end would make of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hatch_precompile.build import build_bundle
from hatch_precompile.config import load
from hatch_precompile.config.cells import Shard, this_cell
from hatch_precompile.merge.zip_writer import write_wheel
from tests.conftest import preload
from tests.support.headers import compiled_headers

SOURCES = Path(__file__).parent / "sources"

ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "shop.models:doubled", "samples": "shop.models:samples"},
    {"target": "shop.models:twice", "samples": "shop.models:samples"},
    {"target": "shop.models:broken_in_two", "samples": "shop.models:samples"},
    {"target": "shop.models:Trained", "samples": "shop.models:samples", "mode": "train"},
    {"target": "shop.models:Scaled", "samples": "shop.models:samples", "instance": "shop.models:scaled"},
]
NAMES = ["doubled", "twice", "broken_in_two", "trained", "scaled"]


@dataclass(frozen=True)
class Made:
    """A build's folder with its bundle, and all that it said."""

    folder: Path

    @property
    def bundle(self) -> Path:
        return self.folder / "_precompiled" / "bundle"

    @property
    def wheel(self) -> Path:
        return self.folder / "shop-1-cp311-cp311-manylinux_2_34_x86_64.whl"

    @property
    def said(self) -> list[str]:
        return (self.folder / "said").read_text().splitlines()

    @property
    def files(self) -> dict[str, bytes]:
        """All of `_precompiled`, by path."""
        top = self.folder / "_precompiled"
        found = (path for path in top.rglob("*") if path.is_file())
        return {path.relative_to(top).as_posix(): path.read_bytes() for path in found}

    def taken_over(self) -> list[str]:
        """The entrypoints of which nothing was captured."""
        text = ": taken over from "
        return [line.partition(text)[0] for line in self.said if text in line]

    def about(self, name: str) -> list[str]:
        return [line.removeprefix(f"{name}: ") for line in self.said if line.startswith(f"{name}: ")]


def make(
    folder: Path,
    edits: dict[str, str],
    earlier: Path | None = None,
    entrypoints: list[dict[str, Any]] = ENTRYPOINTS,
    shard: Shard | None = None,
    **table: Any,
) -> Made:
    """Build the shop with these edits in a folder, which is made, and pack what a wheel would have of it."""
    folder.mkdir(exist_ok=True)
    sources = folder / "sources"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    models = sources / "shop" / "models.py"
    text = models.read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    models.write_text(text)
    (folder / "work").mkdir()
    preload()
    config = load({"entrypoints": entrypoints, "jobs": 2, **table}, default_package="shop")
    said: list[str] = []
    built = build_bundle(
        config,
        source_roots=[sources],
        work=folder / "work",
        report=said.append,
        reuse=earlier,
        shard=shard,
        headers=compiled_headers(),
    )
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(built.directory, folder / "_precompiled", ignore=ignored)
    (folder / "said").write_text("\n".join(said))
    made = Made(folder)
    pack(made.wheel, made.files)
    shutil.rmtree(folder / "work")
    return made


def pack(wheel: Path, files: Mapping[str, bytes]) -> None:
    """A wheel of the shop with these files in `_precompiled`."""
    folder = "shop-1.dist-info"
    requires = b"Requires-Dist: torch==" + this_cell(version("torch")).torch.encode()
    entries = {
        "shop/__init__.py": b"",
        **{f"shop/_precompiled/{name}": content for name, content in files.items()},
        f"{folder}/METADATA": b"Metadata-Version: 2.4\nName: shop\nVersion: 1\n" + requires + b"\n",
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nTag: " + wheel.stem.removeprefix("shop-1-").encode() + b"\n",
    }
    write_wheel(wheel, entries, folder)
