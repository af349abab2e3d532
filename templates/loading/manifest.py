"""The manifest of a bundle: read, and held against this Python and this torch.

Nothing but the standard library at import; hatch_precompile/bundle/ writes what is read here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import sys
from typing import Any

from ..errors import Unfit, raised_by_signal

__all__ = [
    "FORMAT",
    "Missing",
    "cell_name",
    "check_manifest",
    "check_python",
    "check_torch",
    "check_unchanged",
    "has_strings",
    "public",
    "read_bundle",
    "read_file",
    "read_json",
    "read_manifest",
    "read_with_text",
    "seal_of",
    "with_checksum",
]

FORMAT = 3

_KEYS = ("built_with", "variants", "entrypoints", "frames", "graphs", "resumes", "files")


class Missing(Unfit):
    """There is no such file in the bundle."""


def read_manifest(directory: str, name: str = "manifest.json") -> dict[str, Any]:
    """The manifest of a bundle, or of a cell. Raises Unfit, and Missing where there is none."""
    path = os.path.join(directory, name)
    return check_manifest(read_json(path), path)


def read_with_text(directory: str, name: str = "manifest.json") -> tuple[dict[str, Any], bytes]:
    """The same, and the text that it has, which is compared once torch is there: see `check_unchanged`."""
    path = os.path.join(directory, name)
    text = read_bundle(path)
    return check_manifest(parsed(text, path), path), text


def read_json(path: str) -> Any:
    """What is in a JSON file of the bundle. Raises Unfit and Missing."""
    return parsed(read_bundle(path), path)


def parsed(content: bytes, path: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        if raised_by_signal(error):
            raise
        raise Unfit(f"{path} cannot be read ({error}); reinstall the package") from None


def read_bundle(path: str) -> bytes:
    """A file of the bundle that is read before anything else is. Raises Unfit and Missing."""
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        if raised_by_signal(error):
            raise
        from ..causes import advice_on
        from ..errors import IMPORTED

        kind = Missing if isinstance(error, FileNotFoundError) else Unfit
        reason = getattr(error, "strerror", None) or error
        raise kind(f"{path} cannot be read ({reason}); {advice_on(path, IMPORTED, error)}") from None


def read_file(path: str) -> bytes:
    """What is in a file. Raises OSError, also where a pipe or a device is in its place, which would be waited
    for; ValueError for what is no name of a file."""
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        is_regular = True  # `open` says why not
    if not is_regular:
        raise OSError("it is no regular file")
    with open(path, "rb", 0) as file:
        return file.read()


# -- the checksum of a manifest, which has those of all other files --------------------------------

_LINE = b'{\n "sha256": "%s",\n'
_BEHIND = len(_LINE) - 2 + 64


def with_checksum(manifest: bytes) -> bytes:
    """A manifest, as JSON, with the sha256 of all that follows in its first line."""
    rest = manifest.lstrip(b"{\n")
    return _LINE % _sha256(rest) + rest


def is_unchanged(content: bytes) -> bool:
    return content[:_BEHIND] == _LINE % _sha256(content[_BEHIND:])


def check_unchanged(text: bytes, path: str) -> None:
    """Raise Unfit where a manifest is not as it was built. Not before torch is there, which has loaded what
    computes it: that would take an import longer than all that it does."""
    if not is_unchanged(text):
        raise Unfit(f"{path} is damaged (its sha256 is another); reinstall the package")


def seal_of(manifest: dict[str, Any]) -> bytes:
    """The seal: the sha256 of a manifest without its own checksum and those of the files of heads. Each such
    file ends with the seal, so that a manifest that was changed alone, with a right checksum, is noticed."""
    from marshal import dumps

    files = [each for each in manifest["files"].items() if not each[0].endswith(".heads")]
    rest = [each for each in manifest.items() if each[0] not in ("sha256", "files")]
    return _sha256(dumps([rest, files], 2))


def _sha256(content: bytes) -> bytes:
    from hashlib import sha256

    return sha256(content).hexdigest().encode()


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
    left_out = manifest.get("left_out", [])
    return (
        all(
            isinstance(manifest[key], list)
            for key in ("entrypoints", "frames", "variants", "graphs", "resumes")
        )
        and isinstance(manifest["files"], dict)
        and has_strings(manifest["built_with"], "magic", "python", "torch", "torch_git")
        and isinstance(manifest["built_with"].get("cuda", ""), str)
        and all(
            has_strings(each, "name", "backend")
            and each["backend"].isidentifier()
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
        and isinstance(left_out, list)
        and all(has_strings(each, "name", "target") for each in left_out)
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
    """What a bundle is for: `cp311-torch2.13.0`, and with code for GPUs `cp311-torch2.13.0-cu130`."""
    name = f"cp{built_with['python'].replace('.', '')}-torch{public(built_with['torch'])}"
    return f"{name}-cu{built_with['cuda'].replace('.', '')}" if "cuda" in built_with else name


def public(version: str) -> str:
    """A version of torch without its local part: which build of it is installed does not count."""
    return version.partition("+")[0]


def check_python(manifest: dict[str, Any]) -> None:
    if sys.flags.optimize > 1:
        raise Unfit("Python takes docstrings out of code here (-OO, PYTHONOPTIMIZE=2); run it without that")
    if "t" in sys.abiflags:
        raise Unfit(
            "this Python is a free-threaded build, for which there is no compiled code; "
            "use the Python that has the GIL"
        )
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


WHOLE = True
