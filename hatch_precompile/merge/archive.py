"""The files of one wheel, each held against RECORD before it is used."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hatch_precompile.errors import BuildError

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
        with _reading(self.wheel, self.name):
            yield from _chunks(wheels.archive(self.wheel), self.name)

    def read(self) -> bytes:
        """All that is in it. Raises BuildError where it cannot be read."""
        with OpenWheels() as wheels:
            return b"".join(self.chunks(wheels))


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


@contextmanager
def _reading(wheel: Path, name: str = "") -> Iterator[None]:
    what = f"{name} of {wheel}" if name else str(wheel)
    try:
        yield
    except zipfile.BadZipFile as error:
        raise BuildError(
            f"{what} is damaged: {error}" if name else f"{wheel} is not a wheel: {error}"
        ) from error
    except (zlib.error, EOFError) as error:
        raise BuildError(f"{what} is damaged: {error}") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: encrypted, or a compression that is not known
        raise BuildError(f"{what} cannot be read: {error}") from error


def read_archive(wheel: Path) -> dict[str, Content]:
    """All files of a wheel but its RECORD, by name. Raises BuildError where one is not what RECORD says."""
    with _reading(wheel), zipfile.ZipFile(wheel) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        _check_names(wheel, [info.filename for info in infos])
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


def _check_names(wheel: Path, names: list[str]) -> None:
    for name in names:
        if "\\" in name or "\0" in name or name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
            raise BuildError(f"{wheel} holds {name!r}, which leads out of the wheel")
        if PurePosixPath(name).name in _SIGNATURES and ".dist-info/" in name:
            raise BuildError(f"{wheel} is signed ({name}), and no signature stands for a merged wheel")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise BuildError(f"{wheel} holds {twice[0]} twice")


def _content(wheel: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    digest = hashlib.sha256()
    with _reading(wheel, info.filename):
        for chunk in _chunks(archive, info.filename):
            digest.update(chunk)
    executable = bool(info.external_attr >> 16 & 0o111)
    return Content(wheel, info.filename, digest.hexdigest(), info.file_size, executable)


def _check_record(wheel: Path, files: dict[str, Content], record: str) -> None:
    try:
        rows = [row for row in csv.reader(files[record].read().decode().splitlines()) if row]
        listed = {name: digest for name, digest, _ in rows if name != record}
    except ValueError as error:
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
