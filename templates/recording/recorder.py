"""HATCH_PRECOMPILE=record:PATH and record-all:PATH: what calls look like, appended to a file.

Loaded only where one of the two is set. A line of JSON for each kind of call, and again with its count when
that has doubled; docs/users.md has what is in it. Many processes may write to one file: each line is one
write at its end. No tensor is kept, and nothing here changes what serves a call.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Sequence
from sys import _getframe as frame_of
from typing import TYPE_CHECKING, Any

from ..errors import raised_by_signal, warn

if TYPE_CHECKING:
    from ..calling.activation import Entrypoint, Frame, Site
    from .described import Form

__all__ = ["LINE", "SIZE", "Recorder"]


SIZE = 2**20
"""Bytes of a record; no line is written beyond that."""

LINE = 16_384
"""Bytes of a line; a call that takes more is recorded without its arguments."""


class Recorder:
    """The record of one wheel in one process.

    The file is opened for each line: a process may close what it did not open.
    """

    def __init__(self, package: str, mode: str) -> None:
        """mode: the value of HATCH_PRECOMPILE. Never raises: a path that cannot be written is a warning."""
        kind, _, path = mode.partition(":")
        self.hits_too = kind == "record-all"
        self.path = os.path.abspath(path) if path else ""
        self._package = package
        self._mode = mode
        self._stopped = False
        self._missed = threading.local()
        self._forms: dict[tuple[int, str], Form] = {}
        self._renew()
        self._write(b"")
        os.register_at_fork(after_in_child=self._renew)
        atexit.register(self.flush)

    def _renew(self) -> None:
        """Begin with no counts, also in a forked child: the parent writes what it has counted."""
        self._lock = threading.RLock()  # a handler of a signal may call the model, too
        self._seen: dict[str, _Count] = {}

    # -- calls -----------------------------------------------------------------------------------

    def around(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """What answers misses, and records them first."""

        def recorded(site: Site, frame_locals: dict[str, Any], *, under_compile: bool) -> Any:
            self._missed.now = True
            for each in self._asked(site, under_compile):
                self.add(each, frame_locals, served=False)
            return answer(site, frame_locals, under_compile=under_compile)

        return recorded

    def _asked(self, site: Site, under_compile: bool) -> Sequence[Frame]:
        try:
            from ..calling.misses import frames_asked
        except (ImportError, OSError) as error:  # the package is gone since it was imported
            if raised_by_signal(error):
                raise
            return ()
        return frames_asked(site, under_compile=under_compile)

    def watching(self, frame: Frame, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        """The dispatcher of a function, which records hits as well where they are asked for."""
        if not self.hits_too:
            return dispatch
        from ..torch_internals import torch_private

        is_compiling, set_eval_frame = torch_private.is_compiling, torch_private.set_eval_frame
        missed = self._missed

        def watched(frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
            if is_compiling():
                return None
            missed.now = False
            found: Callable[..., Any] | None = dispatch(frame_locals, frame_of(1))
            if found is not None and not missed.now:
                hooked = set_eval_frame(None)
                try:
                    if not frame.installation.uninstalled and torch_private.may_serve():
                        self.add(frame, frame_locals, served=True)
                finally:
                    set_eval_frame(hooked)
            return found

        torch_private.leave_untraced(watched, below=False)
        return watched

    def add(self, frame: Frame, frame_locals: dict[str, Any], *, served: bool) -> None:
        """Count a call, if it is one of an entrypoint's own function. Never raises."""
        if self._stopped:
            return
        try:
            from ..calling.misses import owners_of
            from ..torch_internals.torch_private import at_work

            with at_work():
                for owner in owners_of(frame, frame_locals):
                    if owner.owns(frame) and frame is owner.frames[0]:
                        self._count(self._text(owner, frame, frame_locals, served))
        except Exception as error:
            if raised_by_signal(error):
                raise
            self._stop(f"a call cannot be recorded ({type(error).__name__}: {error})")

    def _text(self, owner: Entrypoint, frame: Frame, frame_locals: dict[str, Any], served: bool) -> str:
        key = (frame.number, owner.name)
        form = self._forms.get(key)
        if form is None:
            from .described import Form

            form = self._forms[key] = Form(owner, frame)
        record = {
            "package": self._package,
            "entrypoint": owner.name,
            "of": "all" if self.hits_too else "misses",
            "served": served,
            "call": form.describe(frame_locals),
        }
        text = json.dumps(record, separators=(",", ":"))
        if len(text) <= LINE:
            return text
        return json.dumps(record | {"call": {"too_large": True}}, separators=(",", ":"))

    # -- counts ----------------------------------------------------------------------------------

    def _count(self, text: str) -> None:
        """Write a call when it is new, and whenever it has come twice as often as before."""
        with self._lock:
            count = self._seen.get(text)
            if count is None:
                count = self._seen[text] = _Count(hashlib.sha256(text.encode()).hexdigest()[:16])
            count.seen += 1
            due = count.seen & (count.seen - 1) == 0
            lines = count.line(text) if due else b""
        if lines:
            self._write(lines)

    def flush(self) -> None:
        """Write what is counted and not yet written."""
        if not self._lock.acquire(timeout=1.0):
            return  # a thread that will never go on
        try:
            pending = [count.line(text) for text, count in self._seen.items() if count.seen > count.written]
        finally:
            self._lock.release()
        for line in pending:
            self._write(line)

    # -- the file --------------------------------------------------------------------------------

    def _write(self, line: bytes) -> None:
        if self._stopped:
            return
        try:
            with self._opened() as file:
                size = os.fstat(file).st_size
                if size + len(line) > SIZE:
                    self._fill(file, size)
                elif line and os.write(file, line) < len(line):
                    os.write(file, b"\n")  # what others write begins on a line of its own
                    self._stop(f"the record {self.path} cannot be written (no space)")
        except OSError as error:
            if raised_by_signal(error):
                raise
            self._stop(f"the record {self.path} cannot be written ({error.strerror or error})")

    @contextlib.contextmanager
    def _opened(self) -> Any:
        if not self.path:
            raise OSError("HATCH_PRECOMPILE names no file")
        # Not to wait for the reader of a pipe, and not to write where somebody else's link leads.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        file = os.open(self.path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is not a regular file")
            yield file
        finally:
            os.close(file)

    def _fill(self, file: int, size: int) -> None:
        """End the record with a line that says so, of whatever is left: nothing fits behind it."""
        self._stopped = True
        with contextlib.suppress(BlockingIOError):  # another process is at it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(file).st_size
            if size < SIZE:
                text = b'{"stopped":"the record is full"}'
                os.write(file, text.ljust(SIZE - size - 1) + b"\n")
                self._stop(f"the record {self.path} is full; no more calls are recorded")
        self._seen.clear()

    def _stop(self, why: str) -> None:
        self._stopped = True
        self._seen.clear()
        warn(self._package, why, self._mode)


class _Count:
    """How often a call came, and how often the file says so. `id`: what stands for its text there."""

    __slots__ = ("id", "seen", "written")

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.seen = 0
        self.written = 0

    def line(self, text: str) -> bytes:
        """The next line about it: whole the first time."""
        more, first = self.seen - self.written, self.written == 0
        self.written = self.seen
        if first:
            return f'{text[:-1]},"id":"{self.id}","count":{more}}}\n'.encode()
        return f'{{"again":"{self.id}","count":{more}}}\n'.encode()


WHOLE = True
