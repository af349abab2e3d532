"""What `hatch-precompile init --write` puts into a pyproject.toml."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import tomllib
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from hatch_precompile.errors import ConfigError

__all__ = ["write"]


def write(pyproject: Path, table: str, requires: list[str]) -> None:
    """Append a table to a file and put `requires` into its build-system.requires. Its other bytes stay.

    Raises ConfigError where that cannot be done; the file is then as it was.
    """
    try:
        before = pyproject.read_bytes()
        _replace(pyproject.resolve(), completed(before, table, requires, pyproject))
    except OSError as error:
        raise ConfigError(f"{pyproject} cannot be written: {error.strerror}") from error


def completed(before: bytes, table: str, requires: list[str], name: Path) -> bytes:
    """The file's new content. What is added has the line ends of the file: \n where it has both kinds."""
    text = before.decode()
    after = _require(text, requires, name) if requires else text
    after = _append(after, table)
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        # A table that is written inline cannot be added to.
        raise ConfigError(
            f"the table cannot be appended to {name}, which would no longer be valid TOML ({error}); "
            "put the lines above where they belong"
        ) from error
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        after = re.sub(r"(?<!\r)\n", "\r\n", after)
    return after.encode()


def _append(text: str, table: str) -> str:
    return text + ("\n" if text.endswith("\n") else "\n\n") + table


def _require(text: str, requires: list[str], name: Path) -> str:
    """The text with these in its build-system.requires."""
    before = tomllib.loads(text).get("build-system", {}).get("requires", [])
    try:
        document = tomlkit.parse(text)
        kept = tomlkit.dumps(document) == text
        if "build-system" not in document:
            # Without a build-backend, as it was: setup.py is run the same way as before.
            return _append(text, tomlkit.dumps({"build-system": {"requires": requires}}))
        system = document["build-system"]
        if "requires" not in system:
            system["requires"] = tomlkit.array()
        _extend(system["requires"], requires)
        after = tomlkit.dumps(document)
        if kept and tomllib.loads(after)["build-system"]["requires"] == [*before, *requires]:
            return after
        problem = ""
    except (TOMLKitError, tomllib.TOMLDecodeError) as error:
        problem = f" ({error})"
    raise ConfigError(
        f"build-system.requires of {name} cannot be added to as it is written{problem}; "
        "put the lines above and these requirements where they belong"
    )


def _extend(array: Array, items: list[str]) -> None:
    """Append to an array in the way it is written: on one line or several, with a last comma or without."""
    text = array.as_string()
    lines = "\n" in text
    indents = re.findall(r"\n([ \t]*)[\"']", text) or ["    "]
    comma = bool(array)
    with contextlib.suppress(tomllib.TOMLDecodeError):
        tomllib.loads(f"array = {text[:-1]}\n,]")  # valid TOML only where there is no last comma yet
        comma = False
    for item in items:
        if lines:
            array.add_line(item, indent=indents[-1], add_comma=comma)
        else:
            array.add_line(item, indent=" " if array else "", add_comma=comma, newline=False)


def _replace(file: Path, content: bytes) -> None:
    """Put a new file into the place of this one: at no time is there half of it."""
    status = file.stat()
    # A file's mode is no hindrance to replacing it, nor to root; but it says what its owner wants.
    if not status.st_mode & 0o222 or not os.access(file, os.W_OK):
        raise ConfigError(f"{file} cannot be written: it is read-only")
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(content)
        with contextlib.suppress(PermissionError):  # root, in a folder of somebody else's
            os.chown(name, status.st_uid, status.st_gid)
        Path(name).chmod(stat.S_IMODE(status.st_mode))
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
