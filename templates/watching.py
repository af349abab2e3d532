"""Calls back when modules have been imported, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

from .installation import executed

__all__ = ["when_imported"]


def when_imported(names: set[str], callback: Callable[[], None]) -> Callable[[], None]:
    """Run `callback` after each import of one of `names`, until it has run for all of them.

    Returns a function that ends the waiting.
    """
    watcher = _Watcher(set(names), callback)
    if names:
        sys.meta_path.insert(0, watcher)
        for name in names:
            watcher.join(name)
    return watcher.stop


class _Watcher:
    """A meta path finder that finds nothing itself: it adds a step after what the others have found.

    To be asked for a module is not to import it (`importlib.util.find_spec` asks as well), so it waits for
    a module until its code has run. Neither it nor the loader has a base class: importlib.abc would cost
    more than the whole install.
    """

    def __init__(self, names: set[str], callback: Callable[[], None]) -> None:
        self.names = names
        self.callback = callback
        self.stopped = False
        self._asking: set[tuple[int, str]] = set()
        """Threads, and what each is asking the other finders for."""

    def stop(self) -> None:
        self.stopped = True
        self._leave()

    def _leave(self) -> None:
        try:
            sys.meta_path.remove(self)
        except ValueError:  # not there, or another thread was first
            pass

    def join(self, name: str) -> None:
        """Wait for a module that is being imported already, by another thread or further up the stack."""
        spec: Any = getattr(sys.modules.get(name), "__spec__", None)
        if not isinstance(spec, ModuleSpec) or not getattr(spec, "_initializing", False):
            return
        kind = type(spec)  # another wheel may wait for it, too

        class InProgress(kind):  # type: ignore[misc, valid-type]
            """The import system says in the spec that a module is being imported, and when it ends."""

            def __setattr__(own, key: str, value: Any) -> None:  # noqa: N805
                if key != "_initializing" or value:
                    super().__setattr__(key, value)
                    return
                object.__setattr__(own, "__class__", kind)
                setattr(own, key, value)
                self.ended(name)

        spec.__class__ = InProgress
        if type(spec) is InProgress and not spec._initializing:  # it has ended in another thread
            spec._initializing = False

    def ended(self, name: str) -> None:
        """The code of a module has run. If it failed, or was run outside of the import system, the module is
        not there, and the next import of it is waited for."""
        if name not in sys.modules or name not in self.names:
            return
        self.names.discard(name)
        if not self.names:
            self._leave()
        if not self.stopped:
            self.callback()

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Another finder may put the same question to all finders, this one among them.
        question = (get_ident(), fullname)
        if fullname not in self.names or question in self._asking:
            return None
        self._asking.add(question)
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            self._asking.discard(question)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Afterwards(spec.loader, self)  # type: ignore[assignment]
        return spec

    def _ask_the_others(self, fullname: str, path: Any, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


class _Afterwards:
    """A module's own loader, and a callback after it has executed the module."""

    def __init__(self, loader: Any, watcher: _Watcher) -> None:
        self._loader = loader
        self._watcher = watcher

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if nobody had been here.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if module.__name__ in sys.modules:
            executed.add(module.__name__)
            self._watcher.ended(module.__name__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
