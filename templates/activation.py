"""All that an import puts in place: frames that load their entries when first looked up, and wrappers
around entrypoints.

One module, and nothing in it that only a call needs: finding a module costs an import more than running it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .references import Stale, check, follow, resolve

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
        self.entries: list[Entry] = []
        self.code: CodeType
        self.globals: dict[str, Any]

    def locate(self, code: CodeType | None = None) -> None:
        """Find the code object, by reference or as given. Raises Stale."""
        self.globals = resolve(self.record["module"], ()).__dict__
        self.code = check(*self.record["code"]) if code is None else code

    def watch(self) -> None:
        """Bring the entries in at the first lookup; they are seen by that very lookup."""
        torch_private.add_entry(self.code, self._first_lookup, self.code)

    def _first_lookup(self, _locals: dict[str, Any]) -> bool:
        if not self.loaded and not self.installation.uninstalled:
            self.load()
        return False

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
                for entry in entries:
                    entry.install()
                installation.end_of_frame(self)
            except Exception as error:  # torch would drop it without a word, and ask again at every call
                installation.leave_out(self, self.record, error)
            # Last: a thread that sees it set goes on to what the others have put in.
            self.loaded = True


class Entrypoint:
    """A declared target in this process."""

    def __init__(self, installation: Installation, record: dict[str, Any]) -> None:
        self.installation = installation
        self.name: str = record["name"]
        self.record = record
        self.frames: list[Frame] = [installation.frames[number] for number in record["frames"]]
        module, _, self.qualname = record["target"].partition(":")
        self.module = sys.modules[module]
        self.on_miss = "error" if installation.mode == "strict" else record["on_miss"]
        self._undo: list[Callable[[], None]] = []
        *owner, self.attribute = self.qualname.split(".")
        self.owner = follow(self.module, [("a", part) for part in owner])
        self.value = follow(self.owner, [("d", self.attribute)])

    def activate(self) -> None:
        """Watch the frames and, with activate = "call", wrap the target. Raises Stale."""
        for frame in self.frames:
            frame.owners.append(self)
            if frame.record.get("resume") is None and not hasattr(frame, "code"):
                try:
                    frame.locate()
                except Stale:
                    if frame is self.frames[0]:
                        raise
                    continue  # its module is imported later, by the entry that leads to it
                frame.watch()
        if self.record["activate"] != "call":
            return
        if isinstance(self.value, type):
            self._wrap_class(self.value)
        elif isinstance(self.value, (staticmethod, classmethod)):
            self._replace(type(self.value)(self._wrapper(self.value.__func__)))
        else:
            self._replace(self._wrapper(self.value))

    def deactivate(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def function(self) -> Any:
        """The Python function whose frame the entries are for."""
        value = self.value
        if isinstance(value, type):
            value = value.forward  # type: ignore[attr-defined]
        return getattr(value, "__func__", value)

    def _wrap_class(self, cls: type) -> None:
        """`Module.__call__` prefers `_compiled_call_impl`: on the class it serves every instance."""
        before = cls.__dict__.get("_compiled_call_impl")
        call = self._runner(None)
        cls._compiled_call_impl = call  # type: ignore[attr-defined]

        def undo() -> None:
            if cls.__dict__.get("_compiled_call_impl") is not call:
                return  # somebody wrapped it after us; our runner then just passes calls on
            if before is None:
                del cls._compiled_call_impl  # type: ignore[attr-defined]
            else:
                cls._compiled_call_impl = before  # type: ignore[attr-defined]

        self._undo.append(undo)

    def _wrapper(self, function: Any) -> Any:
        import functools

        wrapper: Any = functools.update_wrapper(self._runner(function), function)
        # dynamo takes the function itself where it compiles or inlines this wrapper.
        wrapper._torchdynamo_orig_callable = function
        wrapper._torchdynamo_inline = function
        wrapper._precompiled_original = function
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

        untracked: Any = run_module if function is None else run
        for ours in (run, run_module, run_tracked):
            torch_private.leave_untraced(ours, below=False)
        return run_tracked if tracked else untracked

    def _replace(self, wrapper: Any) -> None:
        """Put the wrapper where the target is, and where modules of its package imported it from there."""
        original = self.value
        places: list[tuple[Any, str]] = [(self.owner, self.attribute)]
        if self.owner is self.module:
            top = self.module.__name__.partition(".")[0]
            for name, module in list(sys.modules.items()):
                if isinstance(module, ModuleType) and (name == top or name.startswith(f"{top}.")):
                    places += [
                        (module, key)
                        for key, value in list(vars(module).items())
                        if value is original and (module, key) != places[0]
                    ]
        for owner, key in places:
            setattr(owner, key, wrapper)

        def undo() -> None:
            for owner, key in places:
                if vars(owner).get(key) is wrapper:
                    setattr(owner, key, original)

        self._undo.append(undo)
