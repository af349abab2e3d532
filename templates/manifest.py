"""The manifest of a bundle: read, and held against this Python and this torch.

Nothing but the standard library at import; hatch_precompile/bundle/ writes what is read here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

from .errors import Unfit

__all__ = [
    "FORMAT",
    "Missing",
    "cell_name",
    "check_manifest",
    "check_python",
    "check_torch",
    "has_strings",
    "public",
    "read_json",
    "read_manifest",
]

FORMAT = 2

_KEYS = ("built_with", "variants", "entrypoints", "frames", "graphs", "resumes", "files")


class Missing(Unfit):
    """There is no such file in the bundle."""


def read_manifest(directory: str, name: str = "manifest.json") -> dict[str, Any]:
    """The manifest of a bundle, or of a cell. Raises Unfit, and Missing where there is none."""
    path = os.path.join(directory, name)
    return check_manifest(read_json(path), path)


def read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        kind = Missing if isinstance(error, FileNotFoundError) else Unfit
        raise kind(f"{path} cannot be read ({error}); reinstall the package") from None


def check_manifest(manifest: Any, path: str) -> dict[str, Any]:
    """The manifest, if it is one that this runtime reads. Raises Unfit."""
    found = manifest.get("format") if isinstance(manifest, dict) else None
    lacking = [key for key in _KEYS if found == FORMAT and key not in manifest]
    if lacking:
        raise Unfit(f"{path} has no {', '.join(lacking)}; reinstall the package")
    if found != FORMAT:
        raise Unfit(f"its bundle has format {found!r}, this runtime reads {FORMAT}; reinstall the package")
    if not _is_whole(manifest):
        raise Unfit(f"{path} is damaged; reinstall the package")
    whole: dict[str, Any] = manifest
    return whole


def _is_whole(manifest: dict[str, Any]) -> bool:
    """Whether all that is read at import, or by `status()`, has the type it must have."""
    entrypoints, frames, variants = (manifest[key] for key in ("entrypoints", "frames", "variants"))
    return (
        all(
            isinstance(manifest[key], list)
            for key in ("entrypoints", "frames", "variants", "graphs", "resumes")
        )
        and isinstance(manifest["files"], dict)
        and has_strings(manifest["built_with"], "magic", "python", "torch", "torch_git")
        and all(
            has_strings(each, "name")
            and isinstance(each.get("requires"), list)
            and _all_are(str, each["requires"])
            for each in variants
        )
        and all(
            has_strings(each, "module", "qualname", "heads")
            and isinstance(each.get("entries"), list)
            and isinstance(each.get("functions"), list)
            for each in frames
        )
        and all(
            has_strings(each, "name", "target", "activate", "on_miss")
            and _is_reference(each.get("home"))
            and isinstance(each.get("frames"), list)
            and _all_are(int, each["frames"])
            and all(0 <= number < len(frames) for number in each["frames"])
            and isinstance(each.get("skipped", []), list)
            and all(has_strings(skipped, "function") for skipped in each.get("skipped", []))
            for each in entrypoints
        )
    )


def has_strings(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and _all_are(str, [value.get(key) for key in keys])


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], list)
    )


def _all_are(kind: type, values: list[Any]) -> bool:
    return all(type(value) is kind for value in values)


def cell_name(built_with: dict[str, Any]) -> str:
    """What a bundle is for: `cp311-torch2.13.0`."""
    return f"cp{built_with['python'].replace('.', '')}-torch{public(built_with['torch'])}"


def public(version: str) -> str:
    """A version of torch without its local part: which build of it is installed does not count."""
    return version.partition("+")[0]


def check_python(manifest: dict[str, Any]) -> None:
    built = manifest["built_with"]
    if built["magic"] != importlib.util.MAGIC_NUMBER.hex():
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise Unfit(
            f"it was built for Python {built['python']} (bytecode magic number {built['magic']}), "
            f"this is {here}; install a wheel built for this Python"
        )


def check_torch(manifest: dict[str, Any]) -> None:
    torch = sys.modules["torch"]
    built = manifest["built_with"]
    if public(torch.__version__) != public(built["torch"]):
        raise Unfit(
            f"it was built with torch {built['torch']}, this is {torch.__version__}; "
            f"install torch=={public(built['torch'])} or a wheel built with this torch"
        )
    git = getattr(torch.version, "git_version", None)
    if git != built["torch_git"]:
        raise Unfit(
            f"it was built with another build of torch {built['torch']} (source {built['torch_git'][:10]}); "
            "rebuild the wheel with the torch that is installed here"
        )
