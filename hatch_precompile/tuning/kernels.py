"""Kernels and their configurations, in a bundle and in a file of tuned ones."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["Autotuning", "Configuration", "Key", "MeasuredKernel", "TunedKernel"]

Key = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""What a kernel is known by in every build (`kernel_key` in backends/cuda/configurations.py)."""
Count = Annotated[int, Meta(ge=1, le=64)]
Microseconds = Annotated[float, Meta(gt=0)]


class Configuration(Struct, frozen=True):
    """Of a kernel. arguments: those that a configuration decides, such as `XBLOCK`; num_warps, num_stages: as
    in `triton.Config`"""

    arguments: dict[str, bool | int | float | str]
    num_warps: Count
    num_stages: Count


class Autotuning(Struct, frozen=True):
    """What a bundle has beside a library for a GPU. source: Python that makes its kernels and launches each
    with sample arguments, as inductor runs it to find the fastest configurations; kernels: those that the
    library has, with their names"""

    source: str
    kernels: dict[Key, tuple[str, Configuration]]


class MeasuredKernel(Struct, frozen=True):
    """The microseconds of a launch with each configuration that inductor tries."""

    key: Key
    name: str
    times: list[tuple[Configuration, float]]


class TunedKernel(Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fastest configuration of a kernel. name: of the kernel, for people; microseconds: of a launch,
    `before` with the configuration that the wheel had; gpu: the card on which both were measured"""

    name: str
    microseconds: Microseconds
    before: Microseconds
    gpu: str
