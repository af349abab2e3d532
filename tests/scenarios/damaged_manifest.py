"""Changes of the manifest, each in a child that imports the package and calls what it has."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import damaged_runtime

MANIFEST = damaged_runtime.FOLDER / "bundle/manifest.json"
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 7, 1 << 31, 1 << 64, 10**30, 1.0, 1.5, float("nan"), float("inf")),
    *("", "x", "0", "native", "../x", "/etc/passwd", "a\0b", "\ud800", "x" * 5000),
    *([], [1], [-1], [[]], [None], ["x"], {}, {"0": 0}, {"x": {}}),
)
_CHECKSUM = re.compile(rb'\A\{\n "sha256": "[0-9a-f]{64}",\n')


def changes(how: str, number: int, seed: int, *, right: bool = False) -> list[Any]:
    """What did not go well: [the change, warnings, whether the answers were right, what was raised].

    right: whether the checksum is that of what the manifest was changed to.
    """
    expected = damaged_runtime.in_a_child(HATCH_PRECOMPILE="off")["answers"]
    content = MANIFEST.read_bytes()
    bad = []
    for what, changed in _chosen(how, content, number, random.Random(seed)):
        MANIFEST.write_bytes(_with_checksum(changed) if right else changed)
        found = damaged_runtime.in_a_child()
        said = found.get("said")
        fewest = 0 if right else 1  # not all are read
        if found.get("answers") != expected or said is None or not fewest <= len(said) <= 1:
            bad.append([what, said, found.get("answers") == expected, found.get("raised")])
    MANIFEST.write_bytes(content)
    return bad


Change = tuple[str, bytes]
Path = tuple[Any, ...]
Edit = tuple[str, Callable[[Any], object]]
"""What is done to the parsed manifest."""


def _chosen(how: str, content: bytes, number: int, choose: random.Random) -> Iterator[Change]:
    if how in TEXTS:
        made = TEXTS[how](content)
        yield from choose.sample(made, min(number, len(made)))
        return
    whole = json.loads(content)
    paths = list(_paths(whole))
    for path in choose.choices(paths, k=number):
        edits = list(EDITS[how](whole, path))
        if edits:
            what, edit = choose.choice(edits)
            edited = copy.deepcopy(whole)
            edit(edited)
            yield f"{'.'.join(map(str, path))} {what}", json.dumps(edited, indent=1).encode()


def _with_checksum(content: bytes) -> bytes:
    from hatch_precompile.runtime import runtime

    checked: bytes = runtime("loading.manifest").with_checksum(_CHECKSUM.sub(b"", content))
    return checked


def _digits(content: bytes) -> list[Change]:
    """Each digit, one more."""
    return [
        (f"digit at {at}", content[:at] + str((int(digit) + 1) % 10).encode() + content[at + 1 :])
        for at, digit in ((found.start(), found[0]) for found in re.finditer(rb"\d", content))
    ]


def _words(content: bytes) -> list[Change]:
    """Each string, with another in its place, or in quotes no more."""
    found = []
    for word in re.finditer(rb'"([^"\n]*)"', content):
        for other in (b'"x"', b'""', b"3", b"null", word[1]):
            if other != word[0]:
                found.append(
                    (f"{word[0]!r} is {other!r}", content[: word.start()] + other + content[word.end() :])
                )
    return found


def _bytes(content: bytes) -> list[Change]:
    """Each byte with a bit flipped; and what a file is that was not written to its end."""
    flipped = [
        (f"bit at {at}", content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        for at in range(len(content))
    ]
    return [*flipped, *((f"first {at}", content[:at]) for at in range(0, len(content), 97))]


def _texts(content: bytes) -> list[Change]:
    """What is no JSON, or JSON of another kind: as a whole, and at the end of each line."""
    text = content.decode()
    found: list[Change] = [
        ("with a mark of its order", b"\xef\xbb\xbf" + content),
        ("in UTF-16", text.encode("utf-16")),
        ("in UTF-32", text.encode("utf-32")),
        ("with ends of lines as on Windows", content.replace(b"\n", b"\r\n")),
        ("in a list", b"[" + content + b"]"),
        ("twice", content * 2),
        ("deep", b"[" * 100_000),
        (
            "with deep values",
            content.rstrip().removesuffix(b"}") + b', "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        ),
        ("with zeros behind it", content + bytes(64)),
        ("with a comment", b"// made by hand\n" + content),
    ]
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines[1:-1], 1):
        for what, other in (
            ("there twice", line.rstrip(b"\n,") + b",\n" + line),
            ("gone", b""),
            ("cut", line[: len(line) // 2]),
            ("with a comma more", line.rstrip(b"\n") + b",\n"),
            ("not a number", re.sub(rb"(: |^ +)[^\s:{\[][^{\[]*?(,?\n)", rb"\1NaN\2", line)),
            ("infinite", re.sub(rb"(: |^ +)[^\s:{\[][^{\[]*?(,?\n)", rb"\g<1>1e999\2", line)),
            ("huge", re.sub(rb"(: |^ +)\d+(,?\n)", rb"\g<1>" + b"9" * 5000 + rb"\2", line)),
        ):
            if other != line:
                changed = b"".join([*lines[:number], other, *lines[number + 1 :]])
                found.append((f"line {number} {what}", changed))
    return found


def _values(whole: Any, path: Path) -> Iterator[Edit]:
    """A value is of another type, out of its range, or gone."""
    now = _at(whole, path)
    for value in VALUES:
        if now != value or type(now) is not type(value):
            yield f"is {str(value)[:40]!r}", partial(_set, path, value)
    yield "is gone", lambda edited: _at(edited, path[:-1]).pop(path[-1])


def _kin(whole: Any, path: Path) -> Iterator[Edit]:
    """A value is as another of its type: of the same key elsewhere, or of the same list. A list is longer,
    shorter, in another order; a key has another name; there is a key more."""
    now = _at(whole, path)
    for other in _paths(whole):
        value = _at(whole, other)
        is_kin = other[-1] == path[-1] or other[:-1] == path[:-1]
        if is_kin and type(value) is type(now) and value != now:
            yield f"is {str(value)[:60]!r}", partial(_set, path, copy.deepcopy(value))
    if isinstance(now, list) and now:
        for value in (now[::-1], now[1:], now[:-1], [*now, now[0]]):
            yield f"is {str(value)[:60]!r}", partial(_set, path, value)
    if isinstance(now, dict):
        for key in now:
            yield f"has {key} by another name", partial(_rename, path, key)
        yield "has a key more", partial(_set, (*path, "0"), 0)


def _set(path: Path, value: Any, edited: Any) -> None:
    _at(edited, path[:-1])[path[-1]] = value


def _rename(path: Path, key: str, edited: Any) -> None:
    _at(edited, path)[f"{key}x"] = _at(edited, path).pop(key)


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _paths(value[key], (*path, key))


TEXTS: dict[str, Callable[[bytes], list[Change]]] = {
    "digits": _digits,
    "words": _words,
    "bytes": _bytes,
    "texts": _texts,
}
EDITS: dict[str, Callable[[Any, Path], Iterator[Edit]]] = {"values": _values, "kin": _kin}
