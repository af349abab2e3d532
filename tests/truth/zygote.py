"""A server that forks a process for each case: `python -m tests.truth.zygote MODULE...`

It has imported torch (and the modules given), has started no thread, and has called no operator, so that
a child of it is as good as a fresh process; what is read when Python or torch starts has to be in its
environment. A request is a line of JSON, so is an answer; what the child observed is pickled into a file.
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
import time
from pathlib import Path
from typing import Any

M_PERTURB = -6  # of glibc's malloc.h
IDLE = 5
"""After so many seconds beyond its limit in which nothing of it runs, a process hangs."""


def main() -> None:
    before = _threads()  # more than one where an emulator runs this
    for name in ["torch", "tests.truth.changes", "tests.truth.process", *sys.argv[1:]]:
        importlib.import_module(name)
    assert _threads() == before, "a thread was started"
    gc.collect()
    gc.freeze()  # or each child's first collection copies all of it
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a number


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run(request)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    ended = _ends(child, request["limit"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind, and itself if it hangs
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {
        "ended": "hang" if not ended else "crash" if code < 0 else "exit",
        "code": code,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _ends(child: int, limit: float) -> bool:
    """Whether it ends within the limit, which is extended while it waits for a processor."""
    waiting = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([waiting], [], [], limit)
        idle, used = 0, -1.0
        while not ended and idle < IDLE:
            now, runs = _used(child)
            if now > limit:
                break
            idle = 0 if runs or now != used else idle + 1
            used = now
            ended, _, _ = select.select([waiting], [], [], 1.0)
        return bool(ended)
    finally:
        os.close(waiting)


def _used(group: int) -> tuple[float, bool]:
    """The seconds of processor time of a process group, and whether anything in it could run."""
    ticks, runs = 0, False
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            for task in (entry / "task").iterdir():
                # The name is in parentheses and may contain anything.
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) != group:
                    break
                ticks += int(fields[11]) + int(fields[12])
                runs = runs or fields[0] in "RD"
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), runs


def _run(request: dict[str, Any]) -> None:
    """In the child; it never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        faulthandler.enable()
        if request["perturb"]:
            _perturb(request["perturb"])
        from tests.truth.changes import CHANGES
        from tests.truth.process import Run

        run = Run(request["role"], request["program"], request["site"], request["parameter"])
        CHANGES[request["change"]].apply(run)
        report = run.report()
        Path(request["answer"]).write_bytes(pickle.dumps(report))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _perturb(byte: int) -> None:
    """Fill fresh memory with it, and move what is allocated from here on: what is read but was never written
    may be an address, too."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.mallopt(M_PERTURB, byte)
    libc.malloc.restype = ctypes.c_void_p
    for size in range(16, 16384, 16):
        for _ in range(8):
            libc.malloc(ctypes.c_size_t(size))


if __name__ == "__main__":
    main()
