"""Forks the build's children from a process that has imported what each of them would import.

Torch and its compiler take seconds to import: a build pays for it once, while it still looks at the package.
A child has the environment, the paths and the pipes that it would have as `python -m MODULE`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = ["ForkServer", "Forked", "serve"]

_PIPES = 4  # what a child is handed: its output, the two of child.py, and the one that tells how it ends
_SERVER = f"import sys; from {__name__} import serve; serve(int(sys.argv[1]), sys.argv[2:])"


class Forked:
    """A child of the server's, as `subprocess.Popen` shows one of our own."""

    def __init__(self, pid: int, status: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """How it ended, or None while it runs; as `Popen.poll`."""
        return self._read(wait=False)

    def wait(self) -> int:
        """How it ended, once it has."""
        ended = self._read(wait=True)
        assert ended is not None
        return ended

    def _read(self, wait: bool) -> int | None:
        if self.returncode is None:
            os.set_blocking(self._status.fileno(), wait)
            line: bytes | None = self._status.read()
            if line is None:
                return None
            self.returncode = int(line or -signal.SIGKILL)  # nothing: what waits for it was killed
            self._status.close()
        return self.returncode


class ForkServer:
    """`module` is what children run; `imports`: what is imported for them, in this environment."""

    def __init__(self, module: str, imports: Sequence[str], environment: Mapping[str, str]) -> None:
        self.module = module
        self.environment = dict(environment)
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVER, str(theirs.fileno()), *imports],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )

    def fork(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        paths: Sequence[str],
        pipes: Sequence[int],
    ) -> Forked | None:
        """A child; None where the server is gone, or could not import what it should.

        paths: what comes first in its sys.path; pipes: its output, and the ends for child.py that it gets
        """
        request = {
            "argv": [self.module, *arguments],
            "environment": dict(environment),
            "paths": list(paths),
            "directory": str(Path.cwd()),
        }
        read, written = os.pipe()
        status = os.fdopen(read, "rb")
        with tempfile.TemporaryFile() as file, os.fdopen(written, "wb"):
            file.write(json.dumps(request).encode())
            file.flush()
            try:
                with self._asking:
                    socket.send_fds(self._control, [b"."], [file.fileno(), *pipes, written])
            except OSError:
                status.close()
                return None
        pid = status.readline()
        if pid:
            return Forked(int(pid), status)
        status.close()
        return None

    def kill(self) -> None:
        """Kill the server. Children that it has forked go on, with pipes of their own; a `fork` that still
        waits for its child returns None."""
        self._process.kill()

    def close(self) -> None:
        """The same, and let go of it."""
        self._control.close()
        self.kill()
        self._process.wait()


# -- in the server ---------------------------------------------------------------------------------


def serve(control: int, imports: Sequence[str]) -> None:
    """Fork a child for each request that comes through the socket `control`. Returns in children alone."""
    for name in imports:
        importlib.import_module(name)
    with socket.socket(fileno=control) as requests:
        while (handed := socket.recv_fds(requests, 1, 1 + _PIPES)[1]) and _fork():
            for each in handed:
                os.close(each)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    if handed:  # or the build has closed its end, or is gone
        _run(_become_child(handed))


def _become_child(handed: list[int]) -> dict[str, Any]:
    """Fork once more: the child goes on, and a process that has nothing else to do tells how it ended."""
    request, output, parent, messages, status = handed
    child = _fork()
    if child:
        for each in (request, output, parent, messages):
            os.close(each)
        _, ended = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
        os._exit(0)
    os.setsid()
    os.write(status, f"{os.getpid()}\n".encode())
    os.close(status)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    with os.fdopen(request, "rb") as file:
        file.seek(0)
        asked: dict[str, Any] = json.loads(file.read())
    asked["pipes"] = (parent, messages)
    return asked


def _fork() -> int:
    with warnings.catch_warnings():
        # The threads of numpy's BLAS, which know what a fork is.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run(asked: dict[str, Any]) -> None:
    from hatch_precompile.processes.child import MESSAGES, PARENT

    parent, messages = asked["pipes"]
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"], **{PARENT: str(parent), MESSAGES: str(messages)})
    paths = asked["paths"]
    tempfile.tempdir = None  # the environment may name another
    sys.path[:] = [*paths, *(each for each in sys.path if each not in paths)]
    importlib.invalidate_caches()
    module, *arguments = asked["argv"]
    sys.argv[:] = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        _exit(error.code)
    except BaseException:
        traceback.print_exc()
        _exit(1)
    _exit(0)


def _exit(code: object) -> NoReturn:
    """End as a process of Python does, but for giving back the memory it was forked with: that takes longer
    than most of what a child does. The kernel has it back at once."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)
