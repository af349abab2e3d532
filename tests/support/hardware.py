"""Variants for tests: of what this machine builds for."""

from __future__ import annotations

import platform
from collections.abc import Collection
from typing import Any

import pytest

from hatch_precompile.backends import backends_of
from hatch_precompile.backends.base import Variant

__all__ = ["HERE", "a_variant", "about_x86"]

HERE = backends_of("")[0]
"""The backend of this machine."""

# Nothing on x86-64, where inductor says -march=native, which a cross compiler for 64-bit Arm does not know.
_SETTINGS = HERE.variant("armv8-a").settings if HERE.name == "aarch64" else {}


def about_x86(what: str) -> pytest.MarkDecorator:
    """For tests about what only x86-64 has."""
    return pytest.mark.skipif(platform.machine() != "x86_64", reason=f"{what} of x86-64")


def a_variant(
    name: str = "here", requires: Collection[str] = (), settings: dict[str, Any] | None = None
) -> Variant:
    return Variant(name, tuple(requires), settings or _SETTINGS, HERE.name)
