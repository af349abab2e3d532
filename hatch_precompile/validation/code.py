"""Marshalled code, which this process does not read: bytes that no Python wrote can end the one that does."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from collections.abc import Sequence

from hatch_precompile.errors import OutsideError
from hatch_precompile.validation import disassembly

__all__ = ["disassembled", "split_heads"]

_SECONDS = 60
_MEMORY = 1 << 30


def split_heads(content: bytes, what: str) -> tuple[list[bytes], bytes]:
    """The heads of a frame's entries, and the seal of the manifest that they were built with
    (templates/loading/manifest.py), which is the last of them: marshal's form of a list of bytes is read
    here, and nothing else of it.

    Raises OutsideError, which calls the file `what`.
    """
    heads, place = [], 5
    try:
        kind, count = struct.unpack_from("<cI", content)
        if kind != b"[" or count > len(content):
            raise ValueError("it is no list")
        for _ in range(count):
            kind, size = struct.unpack_from("<cI", content, place)
            place += 5 + size
            if kind != b"s" or place > len(content):
                raise ValueError("it is no list of bytes")
            heads.append(content[place - size : place])
        if place != len(content):
            raise ValueError("something follows it")
        if not heads:
            raise ValueError("it is empty")
    except (struct.error, ValueError) as error:
        raise OutsideError(f"{what} is damaged: {error}") from None
    return heads[:-1], heads[-1]


def disassembled(heads: Sequence[bytes], what: str) -> list[str]:
    """The bytecode of each head, disassembled by a process that has little memory and time, and no more.

    Raises OutsideError, which calls the heads `what`, where one cannot be read.
    """
    command = [sys.executable, "-I", "-S", disassembly.__file__]
    request = json.dumps([head.hex() for head in heads]).encode()
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, timeout=_SECONDS, check=False, preexec_fn=_limit
        )
    except subprocess.TimeoutExpired:
        raise OutsideError(f"{what} cannot be disassembled: that takes more than {_SECONDS} s") from None
    if done.returncode == 0:
        texts: list[str] = json.loads(done.stdout)
        return texts
    if done.returncode < 0:
        raise OutsideError(f"{what} is damaged: reading it ended a process by signal {-done.returncode}")
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise OutsideError(f"{what} is damaged: {said[-1] if said else 'it cannot be read'}")


def _limit() -> None:
    """In the child: no byte written to a file, no core dump, as much memory as code of a model may need."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
