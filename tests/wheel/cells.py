"""Wheels of further cells, made of one that was built: what two builds do not have alike is written anew."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import marshal
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hatch_precompile.runtime import runtime
from tests.wheel.conftest import TORCH

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ELSEWHERE = "3.98"
OLDER = "2.9.1"
"""A version of torch that sorts behind this one as text."""

BUNDLE = "kiosk/_precompiled/bundle/"
INFO = "kiosk-1.0.dist-info/"

Files = dict[str, bytes]


def tag_of(python: str) -> str:
    return f"cp{python.replace('.', '')}"


def name_of(python: str, torch: str) -> str:
    return f"{tag_of(python)}-torch{torch}"


def files_of(wheel: Path) -> Files:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, files: Files, *, record: bool = True, executable: Sequence[str] = ()) -> Path:
    """A wheel with these files; with `record` RECORD is made to list them."""
    if record:
        files[f"{INFO}RECORD"] = _record(files)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100755 if name in executable else 0o100644) << 16
            archive.writestr(info, content)
    return path


def _record(files: Files) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if name != f"{INFO}RECORD":
            rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{INFO}RECORD", "", ""])
    return text.getvalue().encode()


def changed(wheel: Path, path: Path, change: Callable[[Files], object], *, record: bool = True) -> Path:
    files = files_of(wheel)
    change(files)
    return write(path, files, record=record)


def written(manifest: dict[str, Any], files: Files, bundle: str = BUNDLE) -> bytes:
    """A manifest as a build writes it, with its own sha256. Its heads get its seal. files: with names that
    start with `bundle`, those of the manifest among them."""
    manifest.pop("sha256", None)
    seal = runtime("loading.manifest").seal_of(manifest)
    for name in (name for name in manifest["files"] if name.endswith(".heads")):
        *heads, _ = marshal.loads(files[bundle + name])
        files[bundle + name] = marshal.dumps([*heads, seal], 2)
        manifest["files"][name] = hashlib.sha256(files[bundle + name]).hexdigest()
    text: bytes = runtime("loading.manifest").with_checksum(json.dumps(manifest).encode())
    return text


def with_file(files: Files, name: str, content: bytes) -> None:
    """A file of the bundle has this content, and the manifest says so."""
    files[BUNDLE + name] = content
    manifest = json.loads(files[f"{BUNDLE}manifest.json"])
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    files[f"{BUNDLE}manifest.json"] = written(manifest, files)


def as_cell(
    wheel: Path, folder: Path, python: str, torch: str, change: Callable[[Files], object] | None = None
) -> Path:
    """The kiosk as it would come out of a build with that Python and torch, as far as a merge can see.

    The readable graph is another for each torch, and all else is the same.
    """
    files = files_of(wheel)
    manifest = json.loads(files[f"{BUNDLE}manifest.json"])
    built_with = manifest["built_with"]
    own = importlib.util.MAGIC_NUMBER.hex()
    magic = own if python == HERE else f"{int(python.partition('.')[2]):04x}0d0a"
    built_with.update(python=python, magic=magic, torch=f"{torch}+cpu")
    files[f"{BUNDLE}manifest.json"] = written(manifest, files)
    (graph,) = (name for name in manifest["files"] if name.endswith("graphs/0.txt"))
    with_file(files, graph, files[BUNDLE + graph] + f"# {torch}\n".encode())
    old, new = f"{tag_of(HERE)}-{tag_of(HERE)}-", f"{tag_of(python)}-{tag_of(python)}-"
    files[f"{INFO}METADATA"] = files[f"{INFO}METADATA"].replace(
        f"torch=={TORCH}".encode(), f"torch=={torch}".encode()
    )
    files[f"{INFO}WHEEL"] = files[f"{INFO}WHEEL"].replace(old.encode(), new.encode())
    if change is not None:
        change(files)
    return write(folder / name_of(python, torch) / wheel.name.replace(old, new), files)
