"""Symbolic sizes: their values in the sample."""

from __future__ import annotations

from typing import Any

from hatch_precompile.torch_versions import torch_name

__all__ = ["value_in_sample"]


def value_in_sample(size: Any, otherwise: int) -> int:
    """The size that it was traced with, or `otherwise` for one that only data tells. Guards nothing."""
    value: int = torch_name("value of a size in the sample")(size, otherwise)
    return value
