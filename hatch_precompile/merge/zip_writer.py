"""A wheel's file, of which each byte follows from its content."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hatch_precompile.errors import BuildError
from hatch_precompile.merge.archive import Content, OpenWheels

__all__ = ["write_wheel"]

_TIME = (2020, 2, 2, 0, 0, 0)
"""Of every file; the one that hatchling gives where nothing else is asked for."""


def write_wheel(path: Path, entries: Mapping[str, Content | bytes], folder: str) -> None:
    """Write a wheel with these files and their RECORD. folder: that of its metadata, which comes last.

    Either all of it is there at the end or nothing. Raises BuildError where it cannot be written, or a file
    is not what it was.
    """
    names = sorted(entries, key=lambda name: (name.startswith(f"{folder}/"), name))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Not through a link that somebody has put there.
            with temporary.open("xb") as file, zipfile.ZipFile(file, "w") as archive, OpenWheels() as wheels:
                rows = [(name, *_add(archive, name, entries[name], wheels)) for name in names]
                _add(archive, f"{folder}/RECORD", _record([*rows, (f"{folder}/RECORD", "", "")]), wheels)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(f"{path} cannot be written: {error.strerror or error}") from error


def _add(
    archive: zipfile.ZipFile, name: str, content: Content | bytes, wheels: OpenWheels
) -> tuple[str, int]:
    """Write one file; what RECORD says of it."""
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, for the permissions
    executable = isinstance(content, Content) and content.executable
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return _hash(hashlib.sha256(content)), len(content)
    info.file_size = content.size  # for whether it needs zip64
    digest = hashlib.sha256()
    with archive.open(info, "w") as target:
        for chunk in content.chunks(wheels):
            digest.update(chunk)
            target.write(chunk)
    if digest.hexdigest() != content.digest:
        raise BuildError(f"{content.name} of {content.wheel} has changed while it was read")
    return _hash(digest), content.size


def _hash(digest: hashlib._Hash) -> str:
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _record(rows: list[tuple[str, str, int | str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
