"""Damage to the files of the runtime, each in every way: the package is imported and called in a child."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

FOLDER = Path((find_spec("zoo") or sys.modules[__name__].__spec__).origin or "").parent / "_precompiled"  # type: ignore[union-attr]
SECONDS = 60.0

torch.set_grad_enabled(False)


def _without_last_lines(content: bytes) -> bytes:
    """Its first half, to the end of a line: where that is Python all the same, functions are missing."""
    return content[: content.rfind(b"\n", 0, len(content) // 2) + 1]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "emptied": lambda content: b"",
    "halved": lambda content: content[: len(content) // 2],
    "halved at a line": _without_last_lines,
    "a block of it": lambda content: content[:4096] if len(content) > 4096 else content[:-100],
    "zeroed": lambda content: bytes(len(content)),
    "missing": lambda content: None,
}


def every_file(names: list[str] | None = None) -> dict[str, Any]:
    """By file and damage: warnings, whether the answers are eager code's, and what was raised."""
    expected = in_a_child(HATCH_PRECOMPILE="off")["answers"]
    seen: dict[str, Any] = {}
    for file in sorted(FOLDER.glob("*.py")):
        content = file.read_bytes()
        for name, damage in DAMAGES.items():
            if names is not None and name not in names:
                continue
            file.unlink()
            if (damaged := damage(content)) is not None:
                file.write_bytes(damaged)
            found = in_a_child()
            same = found.get("answers") == expected
            seen[f"{file.name} {name}"] = [found.get("said"), same, found.get("raised")]
            file.unlink(missing_ok=True)
            file.write_bytes(content)
    return seen


def pipes_in_the_place_of_files() -> dict[str, Any]:
    """The same for files of the bundle."""
    expected = in_a_child(HATCH_PRECOMPILE="off")["answers"]
    seen = {}
    for name in ("manifest.json", "mlp/frames/0.heads", "mlp/entries/0.entry", "mlp/graphs/0-native.so"):
        file = FOLDER / "bundle" / name
        content = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        found = in_a_child()
        seen[name] = [found.get("said"), found.get("answers") == expected, found.get("raised")]
        file.unlink()
        file.write_bytes(content)
    return seen


def in_a_child(**environment: str) -> dict[str, Any]:
    """What `_use` finds in a child; none of it where that crashes, or takes too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
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
            answers = _answers()
        except BaseException as error:
            return {
                "raised": f"{type(error).__name__}: {error}",
                "said": [str(each.message) for each in said],
            }
    ours = [str(each.message) for each in said if "zoo" in str(each.message)]
    return {"said": ours, "answers": answers, "raised": None}


def _answers() -> list[Any]:
    import zoo.models

    torch.manual_seed(0)
    answers = []
    mlp = zoo.models.Mlp().eval()
    answers += [mlp(torch.linspace(-1, 1, 32).reshape(4, 8)) for _ in range(12)][-1:]
    answers.append(zoo.models.Chatty()(torch.linspace(0, 1, 6)))
    answers.append(mlp(torch.ones(3, 8, dtype=torch.float32).requires_grad_()))  # a miss
    return [[round(value, 4) for value in answer.detach().reshape(-1).tolist()] for answer in answers]
