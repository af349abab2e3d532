"""Runs the build's own child processes: live output, a time limit, nothing left behind.

A child leads a process group of its own, with the compilers it starts. The group ends when the child
does, when it is silent for too long, when the build stops, and when the build's own process is gone.
"""

from __future__ import annotations

import codecs
import contextlib
import inspect
import io
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from hatch_precompile.formatting import in_bytes
from hatch_precompile.processes.child import MEMORY, MESSAGES, PARENT
from hatch_precompile.processes.forkserver import Forked, ForkServer
from hatch_precompile.processes.memory import memory_of

__all__ = [
    "Finished",
    "in_parallel",
    "preloaded",
    "reason_left",
    "run_module",
    "stopping_children",
    "with_advice",
    "within_memory",
]

Given = TypeVar("Given")
Result = TypeVar("Result")

# Settings of this shell that would change what is captured; a build must not depend on them.
_FOREIGN = (
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "TORCH_COMPILE",
    "TORCH_LOGS",
    "TORCH_TRACE",
    "TRITON_",
    "ATEN_CPU_CAPABILITY",
    "HATCH_PRECOMPILE",
    "PYTEST_CURRENT_TEST",  # another one in each test, and servers are for one environment
)

# In seconds.
_POLL = 0.2
_LOOK = 0.25
_DRAIN = 5.0
_LONGEST = 1 << 16  # characters of a line
_ENDING = (signal.SIGTERM, signal.SIGHUP)

Process = subprocess.Popen[bytes] | Forked
_running: set[Process] = set()
_servers: dict[tuple[str, bool], ForkServer] = {}
# The bytes that children may have, 0 for any number; and those that were ended for it, with what they had.
_memory = 0
_over: dict[Process, int] = {}

# In the words of Python, torch, the C++ library, the compiler.
_NO_MEMORY = (
    *("MemoryError", "can't allocate memory", "std::bad_alloc", "Cannot allocate memory"),
    "virtual memory exhausted",
)


@dataclass(frozen=True)
class Finished:
    """How a child ended. `tail`: the last lines it printed; `timed_out`: it was killed for its silence;
    `taken`: the bytes that it had when it was killed for that, else 0."""

    returncode: int
    tail: list[str]
    timed_out: bool
    taken: int = 0

    def ending(self) -> str:
        """How its process ended, in words."""
        if self.taken:
            return (
                f"was ended, because with the compilers it started it had {in_bytes(self.taken)} of memory: "
                + _advice_on_memory()
            )
        if self.returncode >= 0:
            return f"ended with {self.returncode}"
        try:
            return f"was ended by {signal.Signals(-self.returncode).name}"
        except ValueError:  # a signal without a name
            return f"was ended by signal {-self.returncode}"


def _advice_on_memory() -> str:
    return (
        f"the processes of this build may have {in_bytes(_memory)} together; make the samples smaller, "
        "set jobs = 1, or set memory-limit"
    )


def run_module(
    module: str,
    arguments: Sequence[str],
    *,
    paths: Sequence[Path],
    environment: Mapping[str, str],
    inherit: bool,
    quiet_limit: float,
    on_line: Callable[[str], None],
    on_message: Callable[[str], None],
    may_fork: bool = True,
) -> Finished:
    """Run `python -m module` with `paths` importable. The module calls `connect_to_parent()` first.

    inherit: start from this process's environment (less what would change a capture), else from
    nothing; quiet_limit: seconds without output before the child is killed; on_line: each line that is
    printed, as it comes; on_message: what the module itself says, with `tell`; may_fork: whether it may
    come from a server (see `preloaded`).
    """
    tail: deque[str] = deque(maxlen=60)

    def keep(line: str) -> None:
        tail.append(line)
        on_line(line)

    def start(output: int, parent: int, messages: int) -> Process:
        own = _environment(paths, environment, inherit)
        if _memory:
            own[MEMORY] = str(_memory * 5 // 4)  # what grows to the limit is ended, whatever it catches
        server = _servers.get((module, inherit)) if may_fork else None
        if server is not None and server.environment == _environment([], {}, inherit):
            forked = server.fork(arguments, own, [str(path) for path in paths], (output, parent, messages))
            if forked is not None:
                return forked
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            env={**own, PARENT: str(parent), MESSAGES: str(messages)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(parent, messages),
        )

    with _started(start) as (process, output, messages):
        timed_out = _listen(process, {output: _Lines(keep), messages: _Lines(on_message)}, quiet_limit)
        returncode = process.wait()
        taken = _over.pop(process, 0)
    return Finished(returncode, list(tail), timed_out, taken)


@contextlib.contextmanager
def preloaded(module: str, *imports: str, inherit: bool) -> Iterator[None]:
    """While this lasts, children that run `module` start with the modules `imports` imported (forkserver.py).

    inherit: as for `run_module`. Where there is such a server already, this is without effect.
    """
    if (module, inherit) in _servers:
        yield
        return
    server = _servers[module, inherit] = ForkServer(module, imports, _environment([], {}, inherit))
    try:
        yield
    finally:
        del _servers[module, inherit]
        server.close()


@contextlib.contextmanager
def within_memory(limit: int | None) -> Iterator[None]:
    """While this lasts, children have no more than `limit` bytes together; None: as many as there are.

    If they have more, the one that has most is killed. An allocation that would bring a single one a quarter
    above the limit fails.
    """
    global _memory
    if not limit or _memory:  # a build of several has set it
        yield
        return
    _memory, ended = limit, threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK):
            running = {process.pid: process for process in list(_running) if process not in _over}
            taken = memory_of(running)
            if sum(taken.values()) > limit:
                most = max(taken, key=taken.__getitem__)
                _over[running[most]] = taken[most]
                _kill_group(running[most])

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        _memory = 0
        _over.clear()


@contextlib.contextmanager
def _started(start: Callable[[int, int, int], Process]) -> Iterator[tuple[Process, int, int]]:
    """A child that leads a process group, and where its output and its messages are read.

    All end with the block. `start` is handed the ends that the child gets.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
            read, written = os.pipe()
            reader.callback(os.close, read)
            writer.callback(os.close, written)
            return read, written

        output, their_output = pipe(ours, theirs)
        messages, their_messages = pipe(ours, theirs)
        parent, _ = pipe(theirs, ours)  # nothing is written: the child sees it close
        process = start(their_output, parent, their_messages)
        theirs.close()
        _running.add(process)
        try:
            yield process, output, messages
        finally:
            _kill_group(process)
            process.wait()
            _running.discard(process)


def _environment(paths: Sequence[Path], environment: Mapping[str, str], inherit: bool) -> dict[str, str]:
    base = (
        {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)} if inherit else {}
    )
    # The child finds this plugin (and what it was installed with) from where this process did.
    search = [*map(str, paths), *(entry for entry in sys.path if entry)]
    return {
        **base,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(search)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # `-m` would put the working directory before all of these
        "PYTHONHASHSEED": "0",  # sets iterate alike in every build
        # What it imports are the author's files, and setuptools packs the folder it imports them from.
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }


class _Lines:
    """Bytes in, whole lines out. As on a terminal, a carriage return ends one, too. One without an end comes
    in pieces."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), True)
        self._begun = ""
        self._endless = False

    def feed(self, data: bytes, final: bool = False) -> bool:
        """Whether that is progress, which the rest of a line without an end is not."""
        *lines, begun = self._decoder.decode(data, final).split("\n")
        for line in lines:
            self._on_line(self._begun + line)
            self._begun, self._endless = "", False
        self._begun += begun
        if len(self._begun) > _LONGEST or (final and self._begun):
            self._on_line(self._begun)
            self._begun, self._endless = "", True
        return bool(lines) or not self._endless


def _listen(process: Process, streams: dict[int, _Lines], quiet_limit: float) -> bool:
    """Hand on what comes from a child until it has ended. Returns whether it was killed for its silence.

    Something it has started may outlive it and hold its pipes: what is in them then is all that is read.
    """
    timed_out = False
    heard = time.monotonic()
    ended: float | None = None
    pause = _POLL / 64
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while True:
            ready = selector.select(_POLL)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if data:
                    if streams[key.fd].feed(data):
                        heard = time.monotonic()
                else:
                    selector.unregister(key.fileobj)
            now = time.monotonic()
            if ended is not None and (not ready or now - ended > _DRAIN):
                break
            if ended is None and process.poll() is not None:
                ended = now
                _kill_group(process)
            if ended is None and now - heard > quiet_limit:
                timed_out = True
                _kill_group(process)
            if not selector.get_map() and ended is None:
                time.sleep(pause)  # most that close their output end at once; it may be silent for long, too
                pause = min(2 * pause, _POLL)
    for lines in streams.values():
        lines.feed(b"", final=True)
    return timed_out


def in_parallel(function: Callable[[Given], Result], items: Iterable[Given], jobs: int) -> list[Result]:
    """What `function` returns for each item, in their order, at most `jobs` at once.

    As soon as one raises an exception, that is raised, and children that are still running are killed; also
    on an interrupt. If several have raised by then, it is the first of them in that order.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            done = wait(futures, return_when=FIRST_EXCEPTION).done
            return [future.result() for future in futures if future in done]
        except BaseException as error:
            for future in futures:
                future.cancel()
            if not isinstance(error, Exception):  # the build ends, and waits for no server's imports
                for server in list(_servers.values()):
                    server.kill()
            _kill_children()
            while wait(futures, timeout=0.2).not_done:  # one may have been about to start its child
                _kill_children()
            raise


@contextlib.contextmanager
def stopping_children() -> Iterator[None]:
    """While this runs, SIGTERM and SIGHUP end it like an interrupt: children are killed, folders removed. All
    of them wait until torch has been imported, a process started, a folder made.

    Without effect outside of the main thread, and for a signal that the program handles or ignores itself.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if _must_go_on(frame):
            _again_later(number)
            return
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        for each in handled:
            signal.signal(each, signal.SIG_IGN)  # a second one must not keep folders from being removed
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    usual = {**dict.fromkeys(_ENDING, signal.SIG_DFL), signal.SIGINT: signal.default_int_handler}
    handled = {each: kept for each, kept in usual.items() if main and signal.getsignal(each) is kept}
    for each in handled:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each, kept in handled.items():
            signal.signal(each, kept)


# What they have made would be nobody's if they did not come to their end.
_WHOLE = {
    each.__code__
    for each in (
        subprocess.Popen.__init__,
        tempfile.TemporaryDirectory.__init__,
        tempfile.mkdtemp,
        inspect.unwrap(preloaded),
    )
}


def _must_go_on(frame: FrameType | None) -> bool:
    """Whether no exception may come out of what is being done here: a process is started, a folder made, or a
    module of torch's imported, whose C++ code calls Python: there an exception ends the process."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "<module>" and name.partition(".")[0] == "torch":
            return True
        if frame.f_code in _WHOLE:
            return True
        frame = frame.f_back
    return False


def _again_later(number: int) -> None:
    main = threading.main_thread().ident
    assert main is not None
    later = threading.Timer(_POLL, signal.pthread_kill, (main, number))
    later.daemon = True
    later.start()


def reason_left(file: Path, finished: Finished) -> str:
    """What a child that failed has left in a file, or else has said last."""
    reason = "\n".join(finished.tail[-10:])
    with contextlib.suppress(OSError):
        reason = file.read_text("utf-8", "replace") or reason
    return with_advice(reason)


def with_advice(reason: str) -> str:
    """Why a child failed, with what to do where an allocation did, and memory is limited."""
    if not _memory or not any(words in reason for words in _NO_MEMORY):
        return reason
    return f"{reason}\n  There was no memory left for it: {_advice_on_memory()}"


def _kill_children() -> None:
    for process in list(_running):
        _kill_group(process)


def _kill_group(process: Process) -> None:
    """Compilers the child started are in its process group and must not outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
