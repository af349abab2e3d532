"""Frames: code objects that have entries. All that an import needs of them; the rest loads when used."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .references import check, resolve

if TYPE_CHECKING:
    from .entries import Entry

__all__ = ["Frame"]


class Frame:
    """One code object with its entries; they load when it is first looked up."""

    def __init__(self, installation: Any, record: dict[str, Any], owners: list[Any]) -> None:
        self.installation = installation
        self.record = record
        self.owners = owners
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
        """Load the entries at the first lookup; they are seen by that very lookup."""
        torch_private.add_entry(self.code, self._first_lookup, self.code)

    def _first_lookup(self, _locals: dict[str, Any]) -> bool:
        if not self.loaded and not self.installation.uninstalled:
            self.load()
        return False

    def retire(self) -> None:
        for entry in self.entries:
            entry.retire()

    def load(self) -> None:
        """Set up every entry that fits this process; one that does not is left out with a warning."""
        with self.installation.lock:
            if self.loaded:
                return
            self.loaded = True
            from .entries import Entry

            bundle = self.installation.bundle
            for record in self.record["entries"]:
                try:
                    entry = Entry(self, record, bundle)
                except Exception as error:
                    self.installation.leave_out(self, record, error)
                else:
                    self.entries.append(entry)
                    entry.install()
            self.installation.end_of_frame(self)
