"""What the wheels of all cells say alike in METADATA and WHEEL, and what is said for each cell anew."""

from __future__ import annotations

import email.parser
from collections.abc import Iterable, Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import Version

__all__ = ["headers", "range_of", "with_tags", "with_torch", "without_tags", "without_torch"]

_PLACE = b"Requires-Dist: torch of the cells"
_TAG = b"Tag: "


def headers(content: bytes, key: str) -> list[str]:
    """The values of a header of METADATA or WHEEL."""
    return [str(value) for value in email.parser.BytesParser().parsebytes(content).get_all(key, [])]


def range_of(torches: Iterable[str]) -> str:
    """What holds all these versions of torch: `torch==2.13.0`, or `torch<=2.15.0,>=2.13.0`."""
    versions = sorted({Version(Version(torch).public) for torch in torches})
    first, last = versions[0], versions[-1]
    return f"torch=={first}" if first == last else f"torch<={last},>={first}"


def without_torch(metadata: bytes, torches: Iterable[str]) -> tuple[bytes, bool]:
    """METADATA with a place in the stead of what the build added for these versions of torch, and whether it
    added anything."""
    wanted = Requirement(range_of(torches))
    lines = metadata.split(b"\n")
    found = list(_requirements_on_torch(lines, wanted))
    if not found:
        return metadata, False
    lines[found[-1]] = _PLACE  # the project's own stand before it
    return b"\n".join(lines), True


def _requirements_on_torch(lines: list[bytes], wanted: Requirement) -> Iterator[int]:
    for number, line in enumerate(lines):
        key, _, value = line.decode("utf-8", "replace").partition(":")
        if not line.strip():
            return  # from here on it is the description
        if key.lower() != "requires-dist":
            continue
        try:
            found = Requirement(value.strip())
        except InvalidRequirement:
            continue
        plain = found.marker is None and found.url is None and not found.extras
        if canonicalize_name(found.name) == "torch" and plain and found.specifier == wanted.specifier:
            yield number


def with_torch(metadata: bytes, torches: Iterable[str]) -> bytes:
    """What `without_torch` gave, with what holds all these versions at the place."""
    return metadata.replace(_PLACE, f"Requires-Dist: {range_of(torches)}".encode())


def without_tags(wheel: bytes) -> bytes:
    """WHEEL without its tags, and its lines without what may follow them."""
    return b"\n".join(
        line.rstrip() for line in wheel.split(b"\n") if line.strip() and not line.startswith(_TAG)
    )


def with_tags(wheel: bytes, tag: str) -> bytes:
    """What `without_tags` gave, with a line for each tag that a compressed one stands for."""
    return wheel + b"".join(b"\n" + _TAG + each.encode() for each in sorted(map(str, parse_tag(tag)))) + b"\n"
