"""Calls back when modules have been imported, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
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

    Neither it nor the loader has a base class: importlib.abc would cost more than the whole install.
    """

    def __init__(self, names: set[str], callback: Callable[[], None]) -> None:
        self.names = names
        self.callback = callback
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        self._leave()

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

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
        """An import that had begun earlier is over. If it failed, the next one will come by here."""
        if name in sys.modules and name in self.names:
            self.names.discard(name)
            if not self.names:
                self._leave()
            if not self.stopped:
                self.callback()

    def again(self, name: str) -> None:
        """An import failed: wait for the next one."""
        if not self.stopped:
            self.names.add(name)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        # Taken off before the others look, so that the same question does not come back here.
        self.names.discard(fullname)
        if not self.names:
            self._leave()
        spec = None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Afterwards(spec.loader, self)  # type: ignore[assignment]
        return spec


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
        try:
            self._loader.exec_module(module)
        except BaseException:
            self._watcher.again(module.__name__)
            raise
        executed.add(module.__name__)
        self._watcher.callback()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
