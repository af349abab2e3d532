"""Runs a command that must not outlive who started it: `python die_with_parent.py COMMAND ARGUMENT...`.

Standard input is a pipe that nothing is written to. When its other end is closed, the process that held it
is gone: then the process group is ended, asked first. Run as a file: standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

__all__ = ["GRACE"]

GRACE = 20.0
"""How long a command that is asked to end may take, in seconds."""


def main() -> int:
    # The group is asked to end, and this process is of it. A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGTERM, lambda *_: None)
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    ended = threading.Event()

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGTERM)
        ended.wait(GRACE)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    returncode = process.wait()
    ended.set()
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(main())
