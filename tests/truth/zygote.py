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


def main() -> None:
    for name in ["torch", "tests.truth.changes", "tests.truth.process", *sys.argv[1:]]:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread was started"  # noqa: PTH208 - a number
    gc.collect()
    gc.freeze()  # or each child's first collection copies all of it
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run(request)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    waiting = os.pidfd_open(child)
    ended, _, _ = select.select([waiting], [], [], request["limit"])
    os.close(waiting)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind, and itself if it hangs
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {
        "ended": "hang" if not ended else "crash" if code < 0 else "exit",
        "code": code,
        "seconds": round(time.perf_counter() - started, 3),
    }


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


if __name__ == "__main__":
    main()
