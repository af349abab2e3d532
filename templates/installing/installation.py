"""Puts a bundle's entries into this process, as far as they fit it, and takes them out again."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import (
    PrecompileError,
    Unfit,
    check_parts,
    give_up,
    is_damaged,
    raised_by_signal,
    unfit,
    warn,
)
from ..loading.manifest import Missing, cell_name, check_python, check_torch, check_unchanged, read_with_text

if TYPE_CHECKING:
    from ..calling.activation import Entrypoint, Frame
    from ..loading.bundle import Bundle

__all__ = ["Installation", "executed", "is_imported", "spec_of", "unanswered", "whole"]

# Seconds a fork waits for what another thread is loading.
FORK_WAITS = 30.0

# Modules whose code has run while the import system still calls them unfinished.
executed: set[str] = set()


class Installation:
    """One bundle in one process."""

    def __init__(self, directory: str, package: str, mode: str, variant: str | None = None) -> None:
        self.directory = directory
        self.package = package
        self.mode = mode
        self.lock = threading.RLock()
        self._forking: set[int] = set()  # threads that hold the lock for it
        self.loading = False  # with the lock held, by the thread that holds it
        self.reason = ""
        self._text = b""
        """Of the manifest, until it has been compared with its sha256."""
        self.entrypoints: dict[str, Entrypoint] = {}
        self.frames: list[Frame] = []
        self.left_out: dict[str, list[str]] = {}
        self._told: set[str] = set()
        self.variant = variant
        self.loaded_bundle: Bundle | None = None
        self.uninstalled = False
        self._stop_waiting: list[Callable[[], None]] = []
        self.log: Any = None
        self.recorder: Any = None
        self.serving: Any = None
        self.answer: Callable[..., Callable[..., Any] | None] | None = None
        self.waiting: list[Any] = []
        self.manifest: dict[str, Any] = {}
        """Empty as long as it is not known which of several cells is used."""
        self.cells: list[dict[str, Any]] = []
        """Those of a wheel that several were merged into."""
        try:
            self._use(*read_with_text(directory))
        except Missing as missing:
            self.cells = _cells(directory, missing)
        # What is being loaded by another thread would stay half loaded in the child, and the lock held.
        _watch_forks(self)

    def _use(self, manifest: dict[str, Any], text: bytes) -> None:
        names = [each["name"] for each in manifest["variants"]]
        if self.variant is not None and self.variant not in names:
            raise Unfit(f"it has no variant {self.variant}; those it has are {', '.join(names)}")
        self.manifest = manifest
        self._text = text if "sha256" in manifest else b""  # one without has been made by hand

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
        self.loading = False

    # -- installing ------------------------------------------------------------------------------

    def start(self) -> None:
        """Install what can be installed now, and the rest when its modules come in."""
        if not self.manifest:
            from ..loading.cells import of_this_python

            of_this_python(self.cells)
            if not self.is_usable("torch"):
                self.when_imported({"torch"}, self._torch_came_in)
                return
            self._choose_cell()
        self._start()

    def _choose_cell(self) -> None:
        from ..loading.cells import manifest_of, of_this_torch

        cell = of_this_torch(self.cells)
        manifest, text = read_with_text(self.directory, manifest_of(cell["name"]))
        built_with = manifest["built_with"]
        if cell_name(built_with) != cell["name"] or built_with["magic"] != cell["magic"]:
            path = os.path.join(self.directory, manifest_of(cell["name"]))
            raise Unfit(f"{path} is of another cell; reinstall the package")
        self._use(manifest, text)

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
            self.log = whole("explaining.reporting").Log(self.package, own=True)
            for record in self.manifest.get("left_out", ()):
                self.log.left_out(record["name"])
        elif self.mode.startswith(("record:", "record-all:")):
            from ..recording.recorder import Recorder

            self.recorder = Recorder(self.package, self.mode)
        elif self.mode not in ("", "quiet", "strict"):
            known = "off, quiet, log, strict, record:PATH and record-all:PATH"
            warn(self.package, f"HATCH_PRECOMPILE={self.mode} is none of {known}", self.mode)
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

        check_parts()
        self._stop_waiting.append(when_imported(modules, action))

    def proceed(self) -> None:
        """Activate every waiting entrypoint whose target and torch have been imported."""
        if self.uninstalled:
            return
        if self._ready():
            self._or_give_up(self._activate_ready)
        elif self.waiting and self.is_usable("torch"):  # a target that is never imported may be damage
            self._or_give_up(self._check_manifest)

    def _activate_ready(self) -> None:
        # Not under the lock: an import waits for other threads' imports, which may wait for the lock.
        if is_in_the_middle(importlib.import_module("..calling.activation", __package__)):
            return  # the import that goes on below does it
        check_parts()
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
        from ..calling.activation import Frame

        check_torch(self.manifest)
        self._check_manifest()
        # It is being watched: say at once what would be said at the first call.
        if self.mode and self.variant is None:
            self.variant = self.variant_here()
        self.frames = [Frame(self, record, number) for number, record in enumerate(self.manifest["frames"])]

    def _check_manifest(self) -> None:
        """Raise Unfit where the manifest is damaged, and nothing else is known to be wrong with it."""
        if not self._text:
            return
        try:
            check_unchanged(self._text, self.directory)
        except Unfit:
            check_torch(self.manifest)  # the better reason, where one of these raises
            self.variant_here()
            raise
        self._text = b""

    def variant_here(self) -> str:
        backends = whole("backends")
        names = dict.fromkeys(each["backend"] for each in self.manifest["variants"])
        found = {name: whole(f"backends.{name}") for name in names}
        check_parts()
        chosen: str = backends.choose_variant(self.manifest, found)
        return chosen

    @property
    def bundle(self) -> Bundle:
        """The files of the bundle, as the chosen variant has them. Raises Unfit if none fits this CPU."""
        if self.loaded_bundle is None:
            from ..loading.bundle import Bundle

            if self.variant is None:
                self.variant = self.variant_here()
            self.loaded_bundle = Bundle(
                self.directory,
                self.package,
                self.manifest,
                self.variant,
                _lock_of(weakref.ref(self)),
                by_content=bool(self.cells),
            )
        return self.loaded_bundle

    def _activate(self, record: dict[str, Any]) -> None:
        from ..calling.activation import Entrypoint

        name = record["name"]
        try:
            entrypoint = Entrypoint(self, record)
            entrypoint.activate()
        except Exception as error:
            if raised_by_signal(error):
                raise
            if is_damaged(error, self.package):
                raise unfit(error) from None
            self._check_seal()
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
                answer = whole("calling.misses").answer
                check_parts()
            except Exception as error:  # the package is damaged, or gone since it was imported
                if raised_by_signal(error):
                    raise
                if not self.reason:
                    self._give_up(error)
                answer = unanswered
        self.answer = answer if self.recorder is None else self.recorder.around(answer)
        return self.answer

    def leave_out(self, frame: Frame, record: dict[str, Any], error: BaseException) -> None:
        """An entry does not fit this process: say so once per frame, and go on without it.

        Under `strict` it is the miss that follows which raises: a guard being asked cannot.
        """
        try:
            if is_damaged(error, self.package):
                raise unfit(error)
            self._check_seal()
        except Unfit as damage:
            error = damage
        names = [owner.name for owner in frame.owners]
        for name in names:
            self.left_out.setdefault(name, []).append(str(error))
        if isinstance(error, Unfit):  # of the bundle as a whole: said once
            told, self.reason = bool(self.reason), str(error)
            if not told and self.mode != "strict":
                give_up(self.package, error, self.mode)
            return
        if self.reason:
            return
        if self.mode != "strict" and len(self.left_out.get(names[0] if names else "", ())) <= 1:
            self.tell(f"compiled code for {frame.record['qualname']} is not used", error)

    def tell(self, what: str, error: BaseException) -> None:
        """Warn of something that is as it is for this reason; once for each file that is damaged."""
        from ..values.references import Damaged

        if str(error) in self._told:
            return
        if isinstance(error, Damaged):
            self._told.add(str(error))
        warn(self.package, f"{what}: {error}; {getattr(error, 'advice', 'rebuild the wheel')}", self.mode)

    def _check_seal(self) -> None:
        """Raise Unfit where the manifest is not what it was: no wonder that something does not fit."""
        try:
            self.bundle.check_seal()
        except Unfit:
            raise
        except Exception as error:
            if raised_by_signal(error):
                raise
            raise unfit(error) from None

    def let_in(self, frame: Frame, reason: str) -> None:
        """An entry that was left out for this reason, or for none if it is "", fits after all."""
        for owner in frame.owners if reason else ():
            with suppress(ValueError):
                self.left_out[owner.name].remove(reason)

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

    def refresh(self) -> None:
        for fixed in self.loaded_bundle.fixed_weights if self.loaded_bundle is not None else ():
            fixed.refresh()

    def uninstall(self) -> None:
        """Deactivate entrypoints, make every guard refuse, and let go of everything."""
        with self.lock:
            self.uninstalled = True
            self.waiting = []
            if self.recorder is not None:
                self.recorder.flush()
            for stop in self._stop_waiting:
                stop()
            self._stop_waiting = []
            # The last first: two entrypoints may have wrapped one class.
            for entrypoint in reversed(self.entrypoints.values()):
                entrypoint.deactivate()
            for frame in self.frames:
                frame.retire()
            if self.loaded_bundle is not None and self.loaded_bundle.fixed_weights:
                from ..graphs.weights import stop_watching

                stop_watching()
                self.refresh()
            self.entrypoints, self.frames, self.loaded_bundle = {}, [], None


# What goes on at forks cannot be taken back, so that it is told once, for all wheels of a process, and knows
# of installations only while there are such: id -> weak reference, where all of them find it.
_AT_FORKS = "_hatch_precompile_installations"


def _watch_forks(installation: Installation) -> None:
    made: dict[int, weakref.ref[Installation]] = {}
    known = vars(os).setdefault(_AT_FORKS, made)
    if known is made:

        def each(name: str) -> Callable[[], None]:
            def call() -> None:
                for reference in list(known.values()):
                    each_one = reference()
                    if each_one is not None:
                        getattr(each_one, name)()

            # Without the globals of this module, which may go before the process does.
            return FunctionType(call.__code__, {}, name, None, call.__closure__)

        os.register_at_fork(
            before=each("_hold"), after_in_parent=each("_release"), after_in_child=each("_renew")
        )
    key = id(installation)
    known[key] = weakref.ref(installation, lambda _: known.pop(key, None))


def _lock_of(reference: weakref.ref[Installation]) -> Callable[[], AbstractContextManager[Any]]:
    """The installation's lock, which a fork renews. A graph may outlive the installation, and must not keep
    it alive; it then runs without a lock."""

    def lock() -> AbstractContextManager[Any]:
        installation = reference()
        return nullcontext() if installation is None else installation.lock

    return lock


def unanswered(site: Any, frame_locals: dict[str, Any], *, under_compile: bool) -> None:
    """A miss that nobody can explain. Raises PrecompileError with on-miss = "error"."""
    for owner in site.frame.owners:
        if owner.on_miss == "error":
            raise PrecompileError(f"{owner.name} serves no call: its package is damaged, or gone")


def _cells(directory: str, missing: Missing) -> list[dict[str, Any]]:
    """The cells of a bundle that has no manifest of its own. Raises Unfit."""
    from ..loading.cells import read_index

    try:
        return read_index(directory)
    except Missing:
        raise missing from None


def whole(name: str) -> Any:
    """A module of the runtime's that comes in when it is needed. name: from the top, `calling.misses`.

    The handler of a signal may ask for it in the middle of its import by the same thread, which goes on only
    when the handler ends. It gets a module of its own; so these keep nothing in their globals that must last.
    Raises RuntimeError where that needs another one that is in the middle, too.
    """
    module = importlib.import_module(f"..{name}", __package__)
    if is_in_the_middle(module):
        spec: Any = module.__spec__
        module = ModuleType(module.__name__)
        module.__dict__.update(__spec__=spec, __package__=spec.parent, __file__=spec.origin)
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            raise RuntimeError("the handler of a signal came in the middle of an import") from error
    return module


def is_in_the_middle(module: ModuleType) -> bool:
    """Whether the import of a module, which has been asked for, goes on below on this thread's stack."""
    return bool(getattr(module.__spec__, "_initializing", False))


def is_imported(name: str) -> bool:
    """Whether a module's code has run to its end (it is in sys.modules from its start)."""
    if sys.modules.get(name) is None:
        return False
    return name in executed or not getattr(spec_of(name), "_initializing", False)


def spec_of(name: str) -> Any:
    """What the import system says of a module; None where it says nothing. The module itself is not asked:
    one that is imported when it is first asked for anything would be."""
    module = sys.modules.get(name)
    if not issubclass(type(module), ModuleType):
        return None
    spec = _dict_of_module(module).get("__spec__")
    return spec if issubclass(type(spec), ModuleSpec) else None


_dict_of_module: Any = vars(ModuleType)["__dict__"].__get__
ModuleSpec = type(sys.__spec__)


def _needs(record: dict[str, Any]) -> tuple[str, str]:
    return "torch", record["home"][0]


WHOLE = True
