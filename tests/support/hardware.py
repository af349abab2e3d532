"""Variants for tests: of what this machine builds for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hatch_precompile.backends import backends_of
from hatch_precompile.backends.base import Variant

__all__ = ["HERE", "a_variant"]

HERE = backends_of("")[0]
"""The backend of this machine."""


def a_variant(
    name: str = "here", requires: Collection[str] = (), settings: dict[str, Any] | None = None
) -> Variant:
    return Variant(name, tuple(requires), settings or {}, HERE.name)
