"""All that an import puts in place: frames that load their entries when first looked up, and wrappers
around entrypoints.

One module, and nothing in it that only a call needs: finding a module costs an import more than running it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .references import Stale, check, function_with, resolve, unwrap

if TYPE_CHECKING:
    from .entries import Entry
    from .installation import Installation

__all__ = ["Entrypoint", "Frame", "current"]


class _Current(threading.local):
    """The entrypoint whose wrapper is on this thread's stack, and whether its call is being jitted."""

    entrypoint: Entrypoint | None = None
    jitting = False


current = _Current()


class Frame:
    """One code object with its entries; they come in when it is first looked up."""

    def __init__(self, installation: Installation, record: dict[str, Any]) -> None:
        self.installation = installation
        self.record = record
        self.owners: list[Entrypoint] = []
        self.misses = 0
        self.loaded = False
        self.forgotten = False
        self.awaited = False
        self.entries: list[Entry] = []
        self.code: CodeType
        self.globals: dict[str, Any]

    def locate(self, code: CodeType | None = None) -> None:
        """Find the code object, by reference or as given. Raises Stale."""
        self.globals = resolve(self.record["module"], ()).__dict__
        if code is None:
            found = check(*self.record["code"])
            code = found.__code__ if isinstance(found, FunctionType) else found
        self.code = code

    def find(self) -> None:
        """Locate the function and watch it, now or once its module has been imported. Raises Stale."""
        installation = self.installation
        if hasattr(self, "code") or installation.uninstalled:
            return
        modules = {self.record["module"], self.record["code"][0]}
        missing = {module for module in modules if not installation.is_usable(module)}
        if not missing:
            self.locate()
            self.watch()
        elif not self.awaited:
            self.awaited = True
            installation.when_imported(missing, self._find_later)

    def _find_later(self) -> None:
        with self.installation.lock:
            try:
                self.find()
            except Exception as error:  # not in an import of the user's
                self.installation.leave_out(self, self.record, error)

    def watch(self) -> None:
        """Bring the entries in at the first lookup; they are seen by that very lookup."""

        def first_lookup(_locals: dict[str, Any]) -> bool:
            if not self.loaded and not self.installation.uninstalled:
                self.load()
            return False

        torch_private.add_entry(self.code, first_lookup, self.code)
        # From here on only torch holds it: it dies where torch drops all that hangs on the code.
        self._watching = weakref.ref(first_lookup, self._on_forgotten)

    def _on_forgotten(self, _: object) -> None:
        """torch._dynamo.reset() drops the entries of every function that dynamo has compiled, ours too.

        They come back with the next call of an entrypoint: torch is still busy dropping them.
        """
        if not self.installation.uninstalled:
            self.forgotten = True
            for owner in self.owners:
                owner.on_next_call(owner.watch_again)

    def watch_again(self) -> None:
        """Put back what torch has forgotten."""
        installation = self.installation
        with installation.lock:
            if not self.forgotten or installation.uninstalled:
                return
            self.forgotten = False
            try:
                self.watch()
                if self.loaded:
                    self._install()
            except Exception as error:  # not in a call of the user's
                installation.leave_out(self, self.record, error)

    def retire(self) -> None:
        for entry in self.entries:
            entry.retire()

    def load(self) -> None:
        """Put every entry on the code object, each behind a stub that loads the rest of it when needed."""
        from .entries import Entry

        installation = self.installation
        entries: list[Entry] = []
        try:
            bundle = installation.bundle
            heads = bundle.heads(self.record)
            # Not under the lock: this may import, and an import waits for other threads' imports.
            for record, head in zip(self.record["entries"], heads, strict=True):
                try:
                    entries.append(Entry(self, record, head, bundle))
                except Exception as error:
                    installation.leave_out(self, record, error)
        except Exception as error:
            installation.leave_out(self, self.record, error)
        with installation.lock:
            if self.loaded or installation.uninstalled:
                return
            self.entries = entries
            try:
                self._install()
            except Exception as error:  # torch would drop it without a word, and ask again at every call
                installation.leave_out(self, self.record, error)
            # Last: a thread that sees it set goes on to what the others have put in.
            self.loaded = True

    def _install(self) -> None:
        for entry in self.entries:
            entry.install()
        self.installation.end_of_frame(self)


class Entrypoint:
    """A declared target in this process. Making one raises Stale if the target is gone."""

    def __init__(self, installation: Installation, record: dict[str, Any]) -> None:
        self.installation = installation
        self.name: str = record["name"]
        self.record = record
        self.frames: list[Frame] = [installation.frames[number] for number in record["frames"]]
        module, _, self.qualname = record["target"].partition(":")
        self.module = sys.modules[module]
        self.on_miss = "error" if installation.mode == "strict" else record["on_miss"]
        self._places: list[tuple[Any, str, Any]] = []
        self._on_next_call: Callable[[Callable[[], None]], None] | None = None
        *owner, self.attribute = self.qualname.split(".")
        way = [("a", part) for part in owner]
        try:
            self.owner = resolve(module, way)
            self.value = resolve(module, [*way, ("d", self.attribute)])
        except Stale:
            raise Stale(f"{module}.{self.qualname} is gone") from None

    def activate(self) -> None:
        """Watch the frames and, with activate = "call", wrap the target. Raises Stale."""
        for frame in self.frames:
            frame.owners.append(self)
            if frame.record.get("resume") is not None:
                continue  # the entry that leads to it brings it
            try:
                frame.find()
            except Stale as error:
                if frame is self.frames[0]:
                    raise
                self.installation.leave_out(frame, frame.record, error)
        if self.record["activate"] != "call":
            return
        if isinstance(self.value, type):
            # `Module.__call__` prefers it; on the class it serves every instance.
            self._put(self.value, "_compiled_call_impl", self._runner(None))
        elif isinstance(self.value, (staticmethod, classmethod)):
            wrapper = self._wrapper(unwrap(self.value.__func__), isinstance(self.value, classmethod))
            self._put(self.owner, self.attribute, type(self.value)(wrapper))
        else:
            self._replace(self._wrapper(self.value))

    def deactivate(self) -> None:
        """Give every place back what it had, less wrappers of wheels that were uninstalled since."""
        for _, _, value in self._places:
            _function(value)._precompiled_retired = True
        for owner, key, value in reversed(self._places):
            if vars(owner).get(key) is not value:
                continue  # somebody wrapped it after us; our wrapper then just passes calls on
            before = _in_use(value)
            if before is None:
                delattr(owner, key)
            else:
                setattr(owner, key, before)
        self._places.clear()

    def function(self) -> Any:
        """The Python function whose frame the entries are for."""
        value = self.value
        if isinstance(value, type):
            value = value.forward  # type: ignore[attr-defined]
        return unwrap(getattr(value, "__func__", value))

    def owns(self, frame: Frame) -> bool:
        """Whether a frame is the target's own: where that was skipped, the first is of what it calls."""
        return frame is self.frames[0] and function_with(self.function(), frame.code) is not None

    def on_next_call(self, action: Callable[[], None]) -> None:
        """Have the next call of the entrypoint do something first; only with activate = "call"."""
        if self._on_next_call is not None:
            self._on_next_call(action)

    def watch_again(self) -> None:
        for frame in self.frames:
            frame.watch_again()

    def _wrapper(self, function: Any, class_method: bool = False) -> Any:
        wrapper = torch_private.standing_in(self._runner(function), function, class_method=class_method)
        wrapper._precompiled_original = function
        wrapper._precompiled_wrapper = wrapper
        return wrapper

    def _runner(self, function: Any) -> Any:
        """A function that runs `function` (None: a module's `_call_impl`) in run-only mode: entries are
        used, nothing compiles.

        Under a torch.compile of the user's, that one decides: the entries are found by it as well.
        """
        set_eval_frame = torch_private.set_eval_frame
        callback = torch_private.eval_frame_callback
        now = current
        entrypoint = self
        tracked = self.on_miss != "eager"
        strict = self.installation.mode == "strict"

        def run(*args: Any, **kwargs: Any) -> Any:
            if callback() is not None:
                return function(*args, **kwargs)
            set_eval_frame(False)
            try:
                return function(*args, **kwargs)
            finally:
                set_eval_frame(None)

        def run_module(self: Any, *args: Any, **kwargs: Any) -> Any:
            if callback() is not None:
                return self._call_impl(*args, **kwargs)
            set_eval_frame(False)
            try:
                return self._call_impl(*args, **kwargs)
            finally:
                set_eval_frame(None)

        def run_tracked(*args: Any, **kwargs: Any) -> Any:
            outer = now.entrypoint
            # Under a torch.compile of the user's a miss is that one's to compile.
            now.entrypoint = entrypoint if strict or callback() is None else None
            try:
                return untracked(*args, **kwargs)
            finally:
                now.entrypoint = outer

        def on_next_call(action: Callable[[], None]) -> None:
            # Every call asks for the callback: put in that place, this costs the others nothing.
            def act_first() -> Any:
                nonlocal callback
                callback = torch_private.eval_frame_callback
                action()
                return callback()

            nonlocal callback
            callback = act_first

        self._on_next_call = on_next_call
        untracked: Any = run_module if function is None else run
        for ours in (run, run_module, run_tracked):
            torch_private.leave_untraced(ours, below=False)
        return run_tracked if tracked else untracked

    def _replace(self, wrapper: Any) -> None:
        """Put the wrapper where the target is, and where modules of its package imported it from there."""
        self._put(self.owner, self.attribute, wrapper)
        if self.owner is not self.module:
            return
        top = self.module.__name__.partition(".")[0]
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and (name == top or name.startswith(f"{top}.")):
                for key, value in list(vars(module).items()):
                    if value is not wrapper and unwrap(value) is self.value:
                        setattr(module, key, wrapper)
                        self._places.append((module, key, wrapper))

    def _put(self, owner: Any, key: str, value: Any) -> None:
        _function(value)._precompiled_before = vars(owner).get(key)
        setattr(owner, key, value)
        self._places.append((owner, key, value))


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def _in_use(value: Any) -> Any:
    """What a place has without the wrappers of entrypoints that were deactivated, of any wheel."""
    while getattr(_function(value), "__dict__", {}).get("_precompiled_retired"):
        value = _function(value)._precompiled_before
    return value
