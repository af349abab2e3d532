"""Tools in processes of their own: `python -m tests.tools.process REQUEST`, a file of JSON.

The process imports torch and calls nothing; for each tool it forks a child, which is as good as a fresh
process. What a child found is pickled into a file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pickle
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.tools.guest import Guest, Tool
from tests.tools.uses import TOOLS

LIMIT = 300
"""Seconds that a tool may take: they run beside others."""


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    for name in request["imported"]:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread was started"  # noqa: PTH208 - a number
    gc.collect()
    gc.freeze()
    ended = {}
    for name in request["tools"]:
        for moment in request["moments"]:
            answer = Path(request["out"]) / f"{len(ended)}.pickle"
            ended[f"{name} {moment}"] = _forked(TOOLS[name], moment, answer)
    print(json.dumps(ended), flush=True)


def _forked(tool: Tool, moment: str, answer: Path) -> Any:
    """How its process ended."""
    child = os.fork()
    if child == 0:
        _run(tool, moment, answer)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    waiting = os.pidfd_open(child)
    ended, _, _ = select.select([waiting], [], [], LIMIT)
    os.close(waiting)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind, and itself if it hangs
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status) if ended else "hang", "answer": str(answer)}


def _run(tool: Tool, moment: str, answer: Path) -> None:
    """In the child; it never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        log = os.open(answer.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target in (1, 2):
            os.dup2(log, target)
        faulthandler.enable()
        place = answer.with_suffix("")
        place.mkdir()
        os.chdir(place)
        answer.write_bytes(pickle.dumps(tried(tool, moment)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tried(tool: Tool, moment: str) -> dict[str, Any]:
    """What a tool found, how many calls were served meanwhile, and of the ordinary ones after it.

    moment: "first", or "later": when everything has been called.
    """
    torch.set_num_threads(1)
    guest = Guest()
    if moment == "later":
        guest.plain_calls()
        guest.notes.clear()
    before = guest.hits()
    tool.use(guest)
    during = guest.hits() - before
    noted = len(guest.notes)
    guest.plain_calls(5)
    after = guest.hits() - before - during
    return {"notes": guest.notes[:noted], "plain": guest.notes[noted:], "during": during, "after": after}


if __name__ == "__main__":
    main()
