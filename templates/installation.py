"""Puts a bundle's entries into this process, as far as they fit it, and takes them out again."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .errors import PrecompileError, Unfit, give_up, raised_by_signal, warn
from .manifest import Missing, cell_name, check_python, check_torch, read_manifest

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame
    from .bundle import Bundle

__all__ = ["Installation", "executed", "is_imported"]

# Seconds a fork waits for what another thread is loading.
FORK_WAITS = 30.0

# Modules whose code has run while the import system still calls them unfinished.
executed: set[str] = set()


def _kind_of(rounded: Any, variant: str | None) -> str | None:
    """What the manifest has for a variant, whatever else became of it."""
    found = rounded.get(variant) if isinstance(rounded, dict) else None
    return found if isinstance(found, str) else None


class Installation:
    """One bundle in one process."""

    def __init__(self, directory: str, package: str, mode: str, variant: str | None = None) -> None:
        self.directory = directory
        self.package = package
        self.mode = mode
        self.lock = threading.RLock()
        self._forking: set[int] = set()  # threads that hold the lock for it
        self.reason = ""
        self.entrypoints: dict[str, Entrypoint] = {}
        self.frames: list[Frame] = []
        self.left_out: dict[str, list[str]] = {}
        self.variant = variant
        self._bundle: Bundle | None = None
        self.uninstalled = False
        self._stop_waiting: list[Callable[[], None]] = []
        self.log: Any = None
        self.recorder: Any = None
        self.answer: Callable[..., Callable[..., Any] | None] | None = None
        self.waiting: list[Any] = []
        self.manifest: dict[str, Any] = {}
        """Empty as long as it is not known which of several cells is used."""
        self.cells: list[dict[str, Any]] = []
        """Those of a wheel that several were merged into."""
        try:
            self._use(read_manifest(directory))
        except Missing as missing:
            self.cells = _cells(directory, missing)
        # What is being loaded by another thread would stay half loaded in the child, and the lock held.
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._renew)

    def _use(self, manifest: dict[str, Any]) -> None:
        names = [each["name"] for each in manifest["variants"]]
        if self.variant is not None and self.variant not in names:
            raise Unfit(f"it has no variant {self.variant}; those it has are {', '.join(names)}")
        self.manifest = manifest

    def _hold(self) -> None:
        # Loading takes milliseconds, or seconds where torch's wrappers for autograd come in. Longer is a
        # thread that waits for this one, which must not wait in its turn.
        if self.lock.acquire(timeout=FORK_WAITS):
            self._forking.add(threading.get_ident())

    def _release(self) -> None:
        if threading.get_ident() in self._forking:
            self._forking.remove(threading.get_ident())
            self.lock.release()

    def _renew(self) -> None:
        self.lock = threading.RLock()
        self._forking = set()

    # -- installing ------------------------------------------------------------------------------

    def start(self) -> None:
        """Install what can be installed now, and the rest when its modules come in."""
        if not self.manifest:
            from .cells import of_this_python

            of_this_python(self.cells)
            if not self.is_usable("torch"):
                self.when_imported({"torch"}, self._torch_came_in)
                return
            self._choose_cell()
        self._start()

    def _choose_cell(self) -> None:
        from .cells import manifest_of, of_this_torch

        cell = of_this_torch(self.cells)
        manifest = read_manifest(self.directory, manifest_of(cell["name"]))
        if cell_name(manifest["built_with"]) != cell["name"]:
            path = os.path.join(self.directory, manifest_of(cell["name"]))
            raise Unfit(f"{path} is of another cell; reinstall the package")
        self._use(manifest)

    def _torch_came_in(self) -> None:
        if self.uninstalled or self.manifest:
            return
        self._or_give_up(self._choose_and_start)

    def _choose_and_start(self) -> None:
        self._choose_cell()
        self._start()

    def _or_give_up(self, step: Callable[[], None]) -> None:
        """Take a step that an import has made possible: nothing but strict mode may raise out of it."""
        try:
            step()
        except PrecompileError:  # strict
            raise
        except Exception as error:
            if raised_by_signal(error):
                raise
            self._give_up(error)

    def _start(self) -> None:
        check_python(self.manifest)
        if self.mode == "log":
            from .reporting import Log

            self.log = Log(self.package, own=True)
        elif self.mode.startswith("record"):
            from .recording import PREFIXES, Recorder

            if self.mode.startswith(PREFIXES):
                self.recorder = Recorder(self.package, self.mode)
        self.waiting = list(self.manifest["entrypoints"])
        missing = {
            module for record in self.waiting for module in _needs(record) if not self.is_usable(module)
        }
        if missing:
            self.when_imported(missing, self.proceed)
        self.proceed()

    def when_imported(self, modules: set[str], action: Callable[[], None]) -> None:
        """Call `action` after each import of one of the modules, until all of them have been imported."""
        from .import_hooks import when_imported

        self._stop_waiting.append(when_imported(modules, action))

    def proceed(self) -> None:
        """Activate every waiting entrypoint whose target and torch have been imported."""
        if self.uninstalled or not self._ready():
            return
        self._or_give_up(self._activate_ready)

    def _activate_ready(self) -> None:
        # Not under the lock: an import waits for other threads' imports, which may wait for the lock.
        importlib.import_module(".activation", __package__)
        with self.lock:
            ready = self._ready()
            self.waiting = [record for record in self.waiting if record not in ready]
            if ready and not self.frames:
                self._prepare()
            for record in ready:
                self._activate(record)

    def _give_up(self, error: Exception) -> None:
        self.waiting = []
        self.reason = str(error)
        give_up(self.package, error, self.mode)

    def _ready(self) -> list[Any]:
        return [record for record in self.waiting if all(map(self.is_usable, _needs(record)))]

    def is_usable(self, module: str) -> bool:
        """Whether a module's code has run: the package's own has, but for the line that called us."""
        return is_imported(module) or (module == self.package and module in sys.modules)

    def _prepare(self) -> None:
        """Checks and setup that need torch: its version, the frames.

        Not yet whether this CPU fits: nothing of the bundle is used before a call, and asking the CPU costs
        an import a good part of all that the rest does.
        """
        from .activation import Frame

        check_torch(self.manifest)
        # It is being watched: say at once what would be said at the first call.
        if self.mode and self.variant is None:
            self.variant = self._variant_here()
        self.frames = [Frame(self, record, number) for number, record in enumerate(self.manifest["frames"])]

    def _variant_here(self) -> str:
        from .cpu import choose_variant

        return choose_variant(self.manifest)

    @property
    def bundle(self) -> Bundle:
        """The files of the bundle, as the chosen variant has them. Raises Unfit if none fits this CPU."""
        if self._bundle is None:
            from .bundle import Bundle

            if self.variant is None:
                self.variant = self._variant_here()
            self._bundle = Bundle(
                self.directory,
                self.package,
                self.manifest,
                self.variant,
                lambda: self.lock,
                by_content=bool(self.cells),
            )
        return self._bundle

    def _activate(self, record: dict[str, Any]) -> None:
        from .activation import Entrypoint

        name = record["name"]
        try:
            entrypoint = Entrypoint(self, record)
            entrypoint.activate()
        except Exception as error:
            if raised_by_signal(error):
                raise
            self.left_out.setdefault(name, []).append(str(error))
            text = f"entrypoint {name} is not used: {error}; "
            warn(self.package, text + getattr(error, "advice", "rebuild the wheel"), self.mode)
            return
        self.entrypoints[name] = entrypoint
        if self.log is not None:
            entries = sum(len(frame.record["entries"]) for frame in entrypoint.frames)
            self.log.installed(name, entries, self.variant)

    # -- while running ---------------------------------------------------------------------------

    def find_answer(self) -> Callable[..., Callable[..., Any] | None]:
        """What answers misses; its module comes in with the first of them."""
        with self.lock:  # the import alone: a miss waits for nobody's loading
            try:
                from .misses import answer
            except (ImportError, OSError) as error:  # the package is gone since it was imported
                if raised_by_signal(error):
                    raise
                if not self.reason:
                    self._give_up(error)
                answer = _unanswered
        self.answer = answer if self.recorder is None else self.recorder.around(answer)
        return self.answer

    def leave_out(self, frame: Frame, record: dict[str, Any], error: BaseException) -> None:
        """An entry does not fit this process: say so once per frame, and go on without it.

        Under `strict` it is the miss that follows which raises: a guard being asked cannot.
        """
        names = [owner.name for owner in frame.owners]
        for name in names:
            self.left_out.setdefault(name, []).append(str(error))
        if isinstance(error, Unfit):  # of the bundle as a whole: said once
            told, self.reason = bool(self.reason), str(error)
            if not told and self.mode != "strict":
                give_up(self.package, error, self.mode)
            return
        if self.mode != "strict" and len(self.left_out.get(names[0] if names else "", ())) <= 1:
            text = f"compiled code for {frame.record['qualname']} is not used: {error}; "
            text += getattr(error, "advice", "rebuild the wheel")
            warn(self.package, text, self.mode)

    def resume_function(self, number: int) -> Any:
        """The function a graph break continues in, with its own entries installed.

        One with free variables is a factory for it that takes the closure, as dynamo's bytecode has it.
        """
        module = sys.modules[self.manifest["resumes"][number]["module"]]
        frame = next((frame for frame in self.frames if frame.record.get("resume") == number), None)
        code = self.bundle.resume_code(number)
        if frame is not None:
            frame.served = True
            code = frame.resumed(code, module.__dict__)
        if code.co_freevars:
            return lambda closure: FunctionType(code, module.__dict__, code.co_name, None, closure)
        return FunctionType(code, module.__dict__, code.co_name)

    # -- reporting and taking out ----------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        reason = self.reason
        if self.entrypoints and self.variant is None and not reason:
            try:
                self.variant = self._variant_here()
            except Unfit as error:
                reason = str(error)
        entrypoints = {}
        for record in self.manifest.get("entrypoints", ()):
            name = record["name"]
            active = self.entrypoints.get(name)
            frames = active.frames if active is not None else []
            entrypoints[name] = {
                "target": record["target"],
                "active": active is not None,
                "entries": sum(
                    len(self.manifest["frames"][number]["entries"]) for number in record["frames"]
                ),
                "loaded": sum(entry.ready for frame in frames for entry in frame.entries),
                "hits": sum(entry.hits for frame in frames[:1] for entry in frame.entries),
                "misses": sum(frame.misses for frame in frames[:1]),
                "by_entry": [
                    {"function": frame.record["qualname"], "loaded": entry.ready, "hits": entry.hits}
                    for frame in frames
                    for entry in frame.entries
                ],
                "left_out": list(self.left_out.get(name, ())),
                "rounded": _kind_of(record.get("rounded"), self.variant),
                "skipped": [skipped["function"] for skipped in record.get("skipped", ())],
            }
        cell = cell_name(self.manifest["built_with"]) if self.manifest else None
        if cell is None and not reason:
            reason = "torch has not been imported, so that no cell is chosen yet"
        return {
            "installed": bool(self.entrypoints) and not self.uninstalled and not reason,
            "reason": reason,
            "variant": self.variant,
            "cell": cell,
            "cells": [each["name"] for each in self.cells] or [cell],
            "entrypoints": entrypoints,
            "prepared_bytes": self._prepared_bytes(),
        }

    def _prepared_bytes(self) -> int:
        """What was computed of weights that do not change takes in memory."""
        fixed = self._bundle.fixed_weights if self._bundle is not None else ()
        return sum(tensor.numel() * tensor.element_size() for each in fixed for tensor in each.tensors())

    def refresh(self) -> None:
        for fixed in self._bundle.fixed_weights if self._bundle is not None else ():
            fixed.refresh()

    def uninstall(self) -> None:
        """Deactivate entrypoints and make every guard refuse.

        Entries are not freed: another thread may be looking them up, and other wheels' entries may
        sit on the same code.
        """
        with self.lock:
            self.uninstalled = True
            self.waiting = []
            if self.recorder is not None:
                self.recorder.flush()
            for stop in self._stop_waiting:
                stop()
            # The last first: two entrypoints may have wrapped one class.
            for entrypoint in reversed(self.entrypoints.values()):
                entrypoint.deactivate()
            for frame in self.frames:
                frame.retire()
            if self._bundle is not None and self._bundle.fixed_weights:
                from .weights import stop_watching

                stop_watching()


def _unanswered(frame: Frame, site: Any, frame_locals: dict[str, Any], *, under_compile: bool) -> None:
    """A miss that nobody can explain. Raises PrecompileError with on-miss = "error"."""
    for owner in frame.owners:
        if owner.on_miss == "error":
            raise PrecompileError(f"no entry of {owner.name} fits this call, and its package is gone")


def _cells(directory: str, missing: Missing) -> list[dict[str, Any]]:
    """The cells of a bundle that has no manifest of its own. Raises Unfit."""
    from .cells import read_index

    try:
        return read_index(directory)
    except Missing:
        raise missing from None


def is_imported(name: str) -> bool:
    """Whether a module's code has run to its end (it is in sys.modules from its start)."""
    module = sys.modules.get(name)
    if module is None:
        return False
    return name in executed or not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _needs(record: dict[str, Any]) -> tuple[str, str]:
    return "torch", record["home"][0]
