"""Entries: guard function, bytecode and graphs from the files of a bundle. A frame's first call reads the
heads of its entries; an entry's first call that passes its stub reads the rest."""

from __future__ import annotations

import importlib
import marshal
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..dependencies.comparison import check_dependencies
from ..errors import check_parts, raised_by_signal
from ..graphs import callers
from ..torch_internals import torch_private
from ..values.constants import decode
from ..values.references import COMPILED, Damaged, Stale, Unimported
from .bundle import Bundle, with_file
from .guards import Announced, Beside, guard_namespace, native_guard, prepare_guard

if TYPE_CHECKING:
    from ..calling.activation import Frame

__all__ = ["Entry", "heads", "native_after"]

_native_after = 10


def native_after(calls: int) -> None:
    """An entry's guard is native code when it has served so many calls. Verification has it sooner."""
    global _native_after
    _native_after = calls


def heads(frame: Frame) -> list[Callable[[], Entry | None]]:
    """For each entry of a frame what makes it, or leaves it out with a warning."""
    installation = frame.installation

    def make(record: dict[str, Any], head: bytes) -> Entry | None:
        try:
            return Entry(frame, record, head, bundle)
        except Exception as error:
            if raised_by_signal(error):
                raise
            installation.leave_out(frame, record, error)
            return None

    try:
        bundle = installation.bundle
        read = bundle.heads(frame.record)
        return [
            partial(make, record, head) for record, head in zip(frame.record["entries"], read, strict=True)
        ]
    except Exception as error:
        if raised_by_signal(error):
            raise
        installation.leave_out(frame, frame.record, error)
        return []


class Entry:
    """One guarded specialisation. Until a call passes its stub, nothing of it is read but its head.

    stub: the guard's first checks, from the head; guard: asked before each call, the stub until the entry is
    loaded; readable: the guard as a Python function, which has lines.
    """

    def __init__(self, frame: Frame, record: dict[str, Any], head: bytes, bundle: Bundle) -> None:
        self.frame = frame
        self.record = record
        self.hits = 0
        self.ready = False
        self.state: torch_private.StateGuard
        self._lacking = ""
        self._pause = 1
        self._bundle = bundle
        stub, code, constants, modules = marshal.loads(head)
        for module in modules:
            _import(module)
        self.code = with_file(code, frame.code.co_filename, constants, COMPILED)
        torch_private.leave_untraced_code(self.code)
        self.stub = FunctionType(stub, guard_namespace(), "guard")
        self.guard: Callable[[dict[str, Any]], bool] = self.stub
        self.readable = self.stub

    @property
    def given_up(self) -> bool:
        """Whether it does not fit this process, or was taken out."""
        return not self.ready and self.guard is not self.stub

    @property
    def is_for_unused_gpu(self) -> bool:
        """Whether it is for a GPU, and this process has no tensor on one: nothing here opens the driver."""
        return "gpu" in self.record and not sys.modules["torch"].cuda.is_initialized()

    def load(self) -> bool:
        """Set up what the stub stands for; one that does not fit this process is left out with a warning."""
        installation = self.frame.installation
        if self.is_for_unused_gpu:
            return False
        if not self.ready and self.guard is self.stub:
            try:
                with torch_private.at_work():
                    data = marshal.loads(self._bundle.read(self.record["data"]))
                    # Not under the lock: an import waits for other threads', which may wait for the lock.
                    for module in data["modules"]:
                        _import(module)
                    with installation.lock:
                        if installation.loading:
                            return False  # the handler of a signal asks: what it stopped goes on after it
                        if not self.ready and not installation.uninstalled:
                            installation.loading = True
                            try:
                                self._load(data)
                                installation.let_in(self.frame, self._lacking)
                            finally:
                                installation.loading = False
            except Exception as error:
                if raised_by_signal(error):
                    raise
                if type(error) is Stale:
                    self._ask_later(error)
                else:
                    self.give_up(error)
        return self.ready

    def _gpu(self) -> Any:
        """What says which GPUs it is for; None for one for CPUs."""
        record = self.record.get("gpu")
        if record is None:
            return None
        from ..backends.cuda import Gpu

        try:
            variants = {each["name"]: each["requires"] for each in self._bundle.manifest["variants"]}
            return Gpu(variants[record["variant"]][0], pinned=record["pinned"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"the manifest does not say for which GPU it is ({error!r})") from None

    def _check_cuda(self) -> None:
        from ..backends.cuda import check_cuda

        check_cuda(self._bundle.manifest["built_with"])

    def _load(self, data: dict[str, Any]) -> None:
        if "gpu" in self.record:
            self._check_cuda()
        check_dependencies(data["inputs"])
        log = self.frame.installation.log
        stands_in = self if log is None else Announced(self, log)
        namespace = guard_namespace()
        code = prepare_guard(namespace, data, self.frame.globals, stands_in, self._gpu())
        names = {name: self._global(spec) for name, spec in data["globals"].items()}
        self.frame.globals.update(names)
        self.readable = FunctionType(code, namespace, "guard")
        self.guard = self._until_native(data["native"]) if self.record.get("guards") else self.readable
        self.ready = True

    def beside(self) -> Beside:
        """Its guard, to ask without a call. Of an entry that is not loaded it is made without the rest:
        nothing is imported, no library comes in. Raises Stale where the entry would be left out, Unimported
        where it needs a module that its loading imports."""
        if self.ready:
            return Beside(self.readable.__code__, {**self.readable.__globals__}, self.state)
        data = marshal.loads(self._bundle.read(self.record["data"]))
        namespace, made = guard_namespace(), SimpleNamespace()
        try:
            if "gpu" in self.record:
                self._check_cuda()
            # einops need not be called for it.
            check_dependencies(record for record in data["inputs"] if record[0] != "prepared")
            with torch_private.without_torch_function():
                code = prepare_guard(namespace, data, self.frame.globals, made, self._gpu())
        except Stale:
            for module in filter(_is_to_be_imported, data["modules"]):
                raise Unimported(f"module {module} is not imported") from None
            raise
        return Beside(code, namespace, made.state)

    def _until_native(self, native: Any) -> Callable[[dict[str, Any]], bool]:
        """The readable guard, until it has accepted so many calls that a library is worth loading."""
        readable = self.readable

        def guard(frame_locals: dict[str, Any]) -> bool:
            if not readable(frame_locals):
                return False
            if self.hits >= _native_after:
                self._use_native(native)
            return True

        return guard

    def _use_native(self, native: Any) -> None:
        installation = self.frame.installation
        with installation.lock:
            if not self.ready:
                return
            self.guard = self.readable
            try:
                with torch_private.at_work():
                    make = self._bundle.guards(self.record["guards"])
                    self.guard = native_guard(make, self.readable.__globals__, native)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                installation.tell(f"the guards of {self.frame.record['qualname']} run as Python", error)

    def _global(self, spec: Any) -> Any:
        kind, value = spec
        if kind in ("graph", "plain graph"):
            graph = self._bundle.graph(value + self.record["first_graph"])
            return graph if kind == "graph" else callers.without_overrides(graph)
        if kind == "resume":
            number = value + self.record["first_resume"]
            return self.frame.installation.resume_function(number)
        if kind == "warnings":
            from .warning_locations import Warnings

            check_parts()
            names = self.frame.globals
            return Warnings(lambda: decode(value[1]) if value[0] == "constant" else names[value[1]])
        if kind in ("helpers", "random"):
            from .helpers import DynamoHelpers, drawing

            check_parts()
            return DynamoHelpers(value) if kind == "helpers" else drawing(decode(value))
        return decode(value)

    def words(self) -> Any:
        """What the bundle says of the lines of its guard; None if that was removed."""
        try:
            return marshal.loads(self._bundle.read(self.record["data"].removesuffix(".entry") + ".words"))
        except Stale:
            return None

    def give_up(self, error: Exception) -> None:
        """The entry cannot be made to work in this process."""
        self.retire()
        self.frame.installation.leave_out(self.frame, self.record, error)

    def _ask_later(self, error: Stale) -> None:
        """What the entry was made from is not as it was at the build. Perhaps it will be: a test may have
        patched it for this call. So the entry is loaded again at later calls, at one of twice as many each
        time."""
        if not self._lacking:
            self._lacking = str(error)
            self.give_up(error)
        left = self._pause
        self._pause *= 2

        def guard(_locals: dict[str, Any]) -> bool:
            nonlocal left
            left -= 1
            if left <= 0 and not self.frame.installation.uninstalled:
                self.guard = self.stub
            return False

        self.guard = guard

    def retire(self) -> None:
        """Make the guard refuse from now on."""
        self.ready = False
        self.guard = _never
        self.readable = self.stub  # the other has the entry among its globals


def _import(module: str) -> None:
    """A module the traced code imported may not be here yet. A compiler is never imported for it."""
    if _is_to_be_imported(module):
        importlib.import_module(module)


def _is_to_be_imported(module: str) -> bool:
    return module not in sys.modules and not module.startswith(("torch._dynamo", "torch._inductor"))


def _never(_locals: dict[str, Any]) -> bool:
    return False


WHOLE = True
