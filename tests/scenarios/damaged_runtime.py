"""Damage to the files of the runtime, each in every way: the package is imported and called in a child."""

from __future__ import annotations

import importlib
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

_FOUND = find_spec("pair") or find_spec("zoo")
PACKAGE = _FOUND.name if _FOUND is not None else ""
FOLDER = Path((_FOUND.origin if _FOUND is not None else None) or "").parent / "_precompiled"
SECONDS = 60.0
NOBODY = 65534

torch.set_grad_enabled(False)


def _without_last_lines(content: bytes) -> bytes:
    """Its first half, to the end of a line: where that is Python all the same, functions are missing."""
    return content[: content.rfind(b"\n", 0, len(content) // 2) + 1]


def _with_a_hole(content: bytes) -> bytes:
    """Zeros in the middle: a library is as long as it was, and the loader finds nothing wrong with it."""
    middle = len(content) // 2
    return content[:middle] + bytes(len(content[middle : middle + 512])) + content[middle + 512 :]


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "halved": lambda content: content[: len(content) // 2],
    "halved at a line": _without_last_lines,
    "a block of it": lambda content: content[:4096] if len(content) > 4096 else content[:-100],
    "zeroed": lambda content: bytes(len(content)),
    "with a hole": _with_a_hole,
    "with a bit flipped": lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
}
PLACES: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a device": lambda file: file.symlink_to("/dev/zero"),
}
UNREADABLE = "unreadable"
ALL = (*CONTENTS, *PLACES, UNREADABLE)


def every_file(pattern: str, names: Sequence[str] = ALL) -> dict[str, Any]:
    """By file and damage: warnings, whether the answers are eager code's, and what was raised."""
    expected = in_a_child(HATCH_PRECOMPILE="off")["answers"]
    seen: dict[str, Any] = {}
    files = (each for each in FOLDER.rglob(pattern) if each.is_file() and "__pycache__" not in each.parts)
    for file in sorted(files):
        content = file.read_bytes()
        for name in names:
            changed = CONTENTS[name](content) if name in CONTENTS else content
            if changed == content and name in CONTENTS:
                continue
            file.unlink()
            if name in PLACES:
                PLACES[name](file)
            else:
                file.write_bytes(changed)
            if name == UNREADABLE:
                file.chmod(0)
            found = in_a_child(NOBODY if name == UNREADABLE else None)
            same = found.get("answers") == expected
            seen[f"{file.relative_to(FOLDER)} {name}"] = [found.get("said"), same, found.get("raised")]
            if file.is_dir() and not file.is_symlink():
                file.rmdir()
            file.unlink(missing_ok=True)
            file.write_bytes(content)
    return seen


def in_a_child(user: int | None = None, **environment: str) -> dict[str, Any]:
    """What `_use` finds in a child; none of it where that crashes, or takes too long. user: whose the child
    is, where this one is root's, who may read everything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        if user is not None and os.geteuid() == 0:
            os.setuid(user)
        os.write(writing, json.dumps(_use()).encode())
        os._exit(0)
    os.close(writing)
    os.set_blocking(reading, False)
    told, until = b"", time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.01)
        if time.monotonic() > until:
            os.kill(child, 9)
    told = os.read(reading, 1 << 20)
    os.close(reading)
    found: dict[str, Any] = json.loads(told) if told else {"raised": "it crashed, or did not end"}
    return found


def _use() -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            answers = importlib.import_module("pair.models").answers() if PACKAGE == "pair" else _of_the_zoo()
        except BaseException as error:
            return {
                "raised": f"{type(error).__name__}: {error}",
                "said": [str(each.message) for each in said],
            }
    ours = [str(each.message) for each in said if PACKAGE in str(each.message)]
    return {"said": ours, "answers": answers, "raised": None}


def _of_the_zoo() -> list[Any]:
    import zoo.models

    torch.manual_seed(0)
    answers = []
    mlp = zoo.models.Mlp().eval()
    answers += [mlp(torch.linspace(-1, 1, 32).reshape(4, 8)) for _ in range(12)][-1:]
    answers.append(zoo.models.Chatty()(torch.linspace(0, 1, 6)))
    answers.append(mlp(torch.ones(3, 8, dtype=torch.float32).requires_grad_()))  # a miss
    return [[round(value, 4) for value in answer.detach().reshape(-1).tolist()] for answer in answers]
