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
    return watcher.stop


class _Watcher:
    """A meta path finder that finds nothing itself: it adds a step after what the others have found.

    Neither it nor the loader has a base class: importlib.abc would cost more than the whole install.
    """

    def __init__(self, names: set[str], callback: Callable[[], None]) -> None:
        self.names = names
        self.callback = callback

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        # Taken off before the others look, so that the same question does not come back here.
        self.names.discard(fullname)
        if not self.names:
            self.stop()
        spec = None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Afterwards(spec.loader, self.callback)  # type: ignore[assignment]
        return spec


class _Afterwards:
    """A module's own loader, and a callback after it has executed the module."""

    def __init__(self, loader: Any, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if nobody had been here.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        executed.add(module.__name__)
        self._callback()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
