"""The file of a wheel, opened: its members have names that stay within it, and sizes that can be borne."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from hatch_precompile.errors import OutsideError
from hatch_precompile.formatting import in_bytes
from hatch_precompile.validation.names import is_below

__all__ = ["members", "open_wheel", "read_member", "reading"]

_MOST_MEMBERS = 100_000

# What a file may unpack to. Code and weights shrink to a third; text, to a tenth.
_ALWAYS = 256 << 20
_TIMES = 50

_IN_MEMORY = 256 << 20
"""Bytes of one file that is read as a whole."""


@contextmanager
def reading(wheel: Path, name: str = "") -> Iterator[None]:
    """What a damaged archive raises, as OutsideError. name: the member that is read; none: the wheel."""
    what = f"{name} of {wheel}" if name else str(wheel)
    try:
        yield
    except zipfile.BadZipFile as error:
        raise OutsideError(
            f"{what} is damaged: {error}" if name else f"{wheel} is not a wheel: {error}"
        ) from error
    except (zlib.error, EOFError) as error:
        raise OutsideError(f"{what} is damaged: {error}") from error
    # RuntimeError: encrypted; NotImplementedError: a compression that is not known; the others: zipfile's own
    # code at numbers that make no sense
    except (OSError, RuntimeError, ValueError, OverflowError, MemoryError, IndexError) as error:
        raise OutsideError(f"{what} cannot be read: {error}") from error


@contextmanager
def open_wheel(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """Raises OutsideError for what is no regular file, or no archive."""
    if not wheel.is_file():
        raise OutsideError(f"there is no wheel {wheel}")
    with reading(wheel):
        archive = zipfile.ZipFile(wheel)
    with archive:
        yield archive


def members(wheel: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """All files in a wheel. Raises OutsideError where they are not what they may be."""
    infos = archive.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise OutsideError(f"{wheel} holds {len(infos)} files, and {_MOST_MEMBERS} are the most")
    seen: set[str] = set()
    for info in infos:
        if not is_below(info.filename.removesuffix("/")):
            raise OutsideError(
                f"{wheel} holds {info.filename!r}, which leads out of the wheel, or is no name of a file"
            )
        if info.filename in seen:
            raise OutsideError(f"{wheel} holds {info.filename} twice")
        seen.add(info.filename)
    infos = [info for info in infos if not info.is_dir()]
    for info in infos:
        for parent in PurePosixPath(info.filename).parents:
            if str(parent) in seen:
                raise OutsideError(f"{wheel} holds {parent} as a file and as a folder")
    size, most = sum(info.file_size for info in infos), _ALWAYS + _TIMES * wheel.stat().st_size
    if size > most:
        raise OutsideError(
            f"{wheel} has {in_bytes(wheel.stat().st_size)} and would unpack to {in_bytes(size)}; "
            "no wheel shrinks so much"
        )
    return infos


def read_member(wheel: Path, archive: zipfile.ZipFile, name: str, most: int = _IN_MEMORY) -> bytes:
    """What is in a file of a wheel, of so many bytes at most. Raises OutsideError."""
    with reading(wheel, name):
        try:
            size = archive.getinfo(name).file_size
        except KeyError:
            raise OutsideError(f"{wheel} lacks {name}") from None
        if size > most:
            raise OutsideError(f"{name} of {wheel} has {in_bytes(size)}, and {in_bytes(most)} are the most")
        return archive.read(name)
