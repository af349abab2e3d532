"""What code of a bundle must not do while it runs here: write, start, send. A test for mistakes and for
simple malice, and no sandbox: who can load a library can do anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["STARTING", "refusing_effects"]

STARTING = frozenset(
    {"subprocess.Popen", "os.system", "os.fork", "os.posix_spawn", "os.exec", "socket.connect"}
)
"""What starts or sends something."""

_ALL = STARTING | frozenset(
    {
        "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown",
        "os.truncate", "os.kill", "shutil.rmtree",
    }
)  # fmt: skip

_refuse: Callable[[str], Exception] | None = None
_forbidden = _ALL
_watching = False


@contextmanager
def refusing_effects(refuse: Callable[[str], Exception], forbidden: frozenset[str] = _ALL) -> Iterator[None]:
    """While this lasts, in all of this process: what is tried raises what `refuse` makes of its name.

    forbidden: names of audit events, beside opening a file to write
    """
    global _refuse, _forbidden, _watching
    if not _watching:
        sys.addaudithook(_watch)
        _watching = True
    before = _refuse, _forbidden
    _refuse, _forbidden = refuse, forbidden
    try:
        yield
    finally:
        _refuse, _forbidden = before


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _refuse is None:
        return
    if event in _forbidden:
        raise _refuse(event)
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        raise _refuse(f"to write {args[0]}")
