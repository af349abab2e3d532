"""Changes of the manifest, each in a child that imports the package and calls what it has."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import damaged_runtime

MANIFEST = damaged_runtime.FOLDER / "bundle/manifest.json"
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    7,
    10**30,
    1.5,
    "",
    "x",
    "mlp/entries/0.entry",
    [],
    [1],
    {},
    [[]],
)


def changes(how: str, number: int, seed: int) -> list[Any]:
    """What did not go well: [the change, warnings, whether the answers were right, what was raised]."""
    expected = damaged_runtime.in_a_child(HATCH_PRECOMPILE="off")["answers"]
    content = MANIFEST.read_bytes()
    made = {"digits": _digits, "words": _words, "values": _values, "bytes": _bytes}[how](content)
    bad = []
    for what, changed in random.Random(seed).sample(made, min(number, len(made))):
        MANIFEST.write_bytes(changed)
        found = damaged_runtime.in_a_child()
        said = found.get("said")
        fewest = 0 if how == "values" else 1  # not all are read
        if found.get("answers") != expected or said is None or not fewest <= len(said) <= 1:
            bad.append([what, said, found.get("answers") == expected, found.get("raised")])
    MANIFEST.write_bytes(content)
    return bad


Change = tuple[str, bytes]


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


def _values(content: bytes) -> list[Change]:
    """Each value of another type, or gone; written anew, and with a checksum that is right."""
    from hatch_precompile.runtime import runtime

    manifest = json.loads(content)
    manifest.pop("sha256")
    found = []
    for path in _paths(manifest):
        for value in (*VALUES, ...):
            changed = copy.deepcopy(manifest)
            place = changed
            for key in path[:-1]:
                place = place[key]
            if value is ...:
                del place[path[-1]]
            elif place[path[-1]] == value and type(place[path[-1]]) is type(value):
                continue
            else:
                place[path[-1]] = value
            text = runtime("manifest").with_checksum(json.dumps(changed, indent=1).encode())
            found.append((f"{'.'.join(map(str, path))} is {value!r}", text))
    return found


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _paths(value[key], (*path, key))
