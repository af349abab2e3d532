"""The file that `hatch-precompile tune` writes and the key `tuned-kernels` names: kernels by a hash, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from hatch_precompile.errors import BuildError
from hatch_precompile.records import Configuration, KernelKey

__all__ = ["UNTUNED", "TunedKernel", "TunedKernels", "read_tuned_kernels", "write_tuned_kernels"]

Microseconds = Annotated[float, Meta(gt=0)]


class TunedKernel(Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fastest configuration of a kernel. name: of the kernel, for people; microseconds: of a launch,
    `before` with the configuration that the wheel had; gpu: the card on which both were measured"""

    name: str
    microseconds: Microseconds
    before: Microseconds
    gpu: str


class TunedKernels(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. variants: by the name of a variant, its kernels"""

    format: Literal[1] = 1
    variants: dict[str, dict[KernelKey, TunedKernel]] = {}

    def merged(self, variant: str, measured: Mapping[str, TunedKernel | None]) -> TunedKernels:
        """With what was measured for a variant; None: the kernel needs no other configuration than it has
        without this file."""
        kernels = {**self.variants.get(variant, {}), **measured}
        kept = {key: each for key, each in kernels.items() if each is not None}
        return TunedKernels(variants={**self.variants, variant: kept})


UNTUNED = TunedKernels()


def read_tuned_kernels(path: Path, key: str) -> TunedKernels:
    """Raises BuildError, whose text begins with `key`: what named the file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{key}: {path} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(content, type=TunedKernels)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        advice = "write it with `hatch-precompile tune`"
        raise BuildError(f"{key}: {path} is no file of tuned kernels: {error}; {advice}") from None


def write_tuned_kernels(path: Path, kernels: TunedKernels) -> None:
    """In order, so that two versions can be compared; whole, or not at all. Raises BuildError."""
    ordered = {
        variant: dict(sorted(tuned.items(), key=lambda item: (item[1].name, item[0])))
        for variant, tuned in sorted(kernels.variants.items())
        if tuned
    }
    text = msgspec.json.format(msgspec.json.encode(TunedKernels(variants=ordered)), indent=1) + b"\n"
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(text)
        beside.replace(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be written: {error.strerror}") from None
