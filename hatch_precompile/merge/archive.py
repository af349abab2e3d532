"""The files of one wheel, each held against RECORD before it is used."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hatch_precompile.errors import BuildError
from hatch_precompile.validation.wheels import members, open_wheel, read_member, reading

__all__ = ["Content", "OpenWheels", "read_archive"]

_CHUNK = 1 << 20  # bytes of a file that are held in memory

_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True)
class Content:
    """A file in a wheel. digest: its sha256 in hexadecimal; size: in bytes."""

    wheel: Path
    name: str
    digest: str
    size: int
    executable: bool = False

    def same_as(self, other: Content) -> bool:
        return (self.digest, self.executable) == (other.digest, other.executable)

    def chunks(self, wheels: OpenWheels) -> Iterator[bytes]:
        """What is in it, part by part. Raises BuildError where it cannot be read."""
        with reading(self.wheel, self.name):
            yield from _chunks(wheels.archive(self.wheel), self.name)

    def read(self) -> bytes:
        """All that is in it. Raises BuildError where it cannot be read."""
        with open_wheel(self.wheel) as archive:
            return read_member(self.wheel, archive, self.name)


class OpenWheels(ExitStack):
    """Keeps wheels open while it is entered: opening one takes a time for each file that is in it."""

    def __init__(self) -> None:
        super().__init__()
        self._archives: dict[Path, zipfile.ZipFile] = {}

    def archive(self, wheel: Path) -> zipfile.ZipFile:
        if wheel not in self._archives:
            self._archives[wheel] = self.enter_context(zipfile.ZipFile(wheel))
        return self._archives[wheel]


def _chunks(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def read_archive(wheel: Path) -> dict[str, Content]:
    """All files of a wheel but its RECORD, by name. Raises BuildError where one is not what RECORD says."""
    with open_wheel(wheel) as archive:
        infos = members(wheel, archive)
        _check_unsigned(wheel, infos)
        files = {info.filename: _content(wheel, archive, info) for info in infos}
    records = [name for name in files if _is_record(name)]
    if len(records) != 1:
        raise BuildError(f"{wheel} is not a wheel: it has {len(records)} files RECORD")
    _check_record(wheel, files, records[0])
    del files[records[0]]
    return files


def _is_record(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) == 2 and path.parts[0].endswith(".dist-info") and path.name == "RECORD"


def _check_unsigned(wheel: Path, infos: list[zipfile.ZipInfo]) -> None:
    for info in infos:
        if PurePosixPath(info.filename).name in _SIGNATURES and ".dist-info/" in info.filename:
            raise BuildError(
                f"{wheel} is signed ({info.filename}), and no signature stands for a merged wheel"
            )


def _content(wheel: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    digest = hashlib.sha256()
    with reading(wheel, info.filename):
        for chunk in _chunks(archive, info.filename):
            digest.update(chunk)
    executable = bool(info.external_attr >> 16 & 0o111)
    return Content(wheel, info.filename, digest.hexdigest(), info.file_size, executable)


def _check_record(wheel: Path, files: dict[str, Content], record: str) -> None:
    try:
        # Not splitlines(): a name may hold a character that ends a line for people.
        rows = [row for row in csv.reader(io.StringIO(files[record].read().decode(), newline="")) if row]
        listed = {name: digest for name, digest, _ in rows if name != record}
    except (ValueError, csv.Error) as error:
        raise BuildError(f"{record} of {wheel} is damaged: {error}") from error
    for name, content in files.items():
        if name == record:
            continue
        if name not in listed:
            raise BuildError(f"{wheel} holds {name}, which its RECORD does not list")
        digest = base64.urlsafe_b64encode(bytes.fromhex(content.digest)).rstrip(b"=").decode()
        if listed.pop(name) != f"sha256={digest}":
            raise BuildError(f"{name} of {wheel} is damaged: its sha256 is not the one in RECORD")
    if listed:
        raise BuildError(f"{wheel} lacks {min(listed)}, which its RECORD lists")
