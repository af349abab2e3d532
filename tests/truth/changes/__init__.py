"""Changes between build and call. Each is a function that steers a process: it loads the program, calls it,
and changes something before, between or around."""

from __future__ import annotations

from tests.truth.changes import asked, data, modes, others, patches, processes, state, values
from tests.truth.changes.registry import CHANGES, Change

__all__ = ["CHANGES", "Change", "asked", "data", "modes", "others", "patches", "processes", "state", "values"]
