"""What a child does with the pipes to its parent (parent.py)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from hatch_precompile.processes.memory import limit_data

__all__ = ["MEMORY", "MESSAGES", "PARENT", "connect_to_parent", "leave_reason", "tell"]

# Where a child finds how many bytes it may have, if that is limited; the pipe that its parent holds the other
# end of; and the one its messages go to.
MEMORY = "_HATCH_PRECOMPILE_MEMORY"
PARENT = "_HATCH_PRECOMPILE_PARENT"
MESSAGES = "_HATCH_PRECOMPILE_MESSAGES"

_messages: int | None = None
_telling = threading.Lock()


def connect_to_parent() -> None:
    """Called in a child before anything else: kill it, with all that it has started, as soon as its parent
    is gone, keep the pipe that `tell` writes to from what it starts, and take no more memory than it may."""
    global _messages
    if memory := os.environ.pop(MEMORY, ""):
        limit_data(int(memory))
    parent, _messages = int(os.environ.pop(PARENT)), int(os.environ.pop(MESSAGES))
    for pipe in (parent, _messages):
        os.set_inheritable(pipe, False)
    os.register_at_fork(after_in_child=_disconnect)

    def watch() -> None:
        os.read(parent, 1)  # nothing is ever written: this returns when the other end is closed
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _disconnect() -> None:
    global _messages
    if _messages is not None:
        os.close(_messages)
        _messages = None


def tell(message: str) -> None:
    """A message of one line from a child to the process that runs it, whatever the author's code prints."""
    if _messages is None:
        raise RuntimeError("this process has no parent to tell")
    data = message.encode() + b"\n"
    with _telling:
        while data:
            data = data[os.write(_messages, data) :]


def leave_reason(file: Path, reason: str) -> None:
    """Called in a child that fails for a reason: leave it to the parent in a file."""
    try:
        # What the author raises may have halves of characters.
        file.write_bytes(reason.encode("utf-8", "backslashreplace"))
    except OSError:  # where nothing can be written, the last lines of its output are all there is
        sys.stdout.write(reason.encode("utf-8", "backslashreplace").decode() + "\n")
        sys.stdout.flush()
