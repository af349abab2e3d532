"""Keeps a project's sources out of the process that verifies its wheel, where they are installed editable."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatch_precompile.static_lookup import attribute

__all__ = ["hide_sources"]


def hide_sources(folders: Sequence[str]) -> None:
    """Let nothing be imported from these folders, but for what lies in site-packages below them."""
    hidden = {Path(folder).resolve() for folder in folders}
    if hidden:
        sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in hidden]
        sys.meta_path[:] = [finder for finder in sys.meta_path if hidden.isdisjoint(_parents_of(finder))]


def _parents_of(finder: Any) -> set[Path]:
    """Of what an editable install's finder knows: module -> its folder or file. `MAPPING` was seen in
    setuptools 84.2; `_redirections` is that of editables, which was not run."""
    of_setuptools = attribute(sys.modules.get(attribute(finder, "__module__", "")), "MAPPING", None)
    known = of_setuptools if of_setuptools is not None else attribute(finder, "_redirections", None)
    places = known.values() if isinstance(known, dict) else ()
    return {parent for place in places if isinstance(place, str) for parent in Path(place).resolve().parents}
