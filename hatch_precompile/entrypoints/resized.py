"""A sample with other sizes in its declared dimensions. Its values are of no matter, their kind is."""

from __future__ import annotations

from dataclasses import replace

import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.call import Sample, copied
from hatch_precompile.entrypoints.dynamic import declared_sizes
from hatch_precompile.entrypoints.finding import Target
from hatch_precompile.tracing.tensors import like_stretched

__all__ = ["Sizes", "in_words", "resizable", "resized"]

Sizes = tuple[tuple[str, int, int], ...]
"""Each the name of dimensions, their size in the sample, and the one to take instead: ("height", 32, 64)."""


def resized(entrypoint: Entrypoint, target: Target, sample: Sample) -> Sample:
    """A copy of a sample, with the sizes that it asks for. Its values are the sample's, repeated or cut off.

    Its tensors are `resizable`.
    """
    if not sample.resized:
        return copied(sample)
    wanted = {(name, before): after for name, before, after in sample.resized}
    made = copied(replace(sample, resized=()))
    sizes: dict[int, tuple[torch.Tensor, dict[int, int]]] = {}
    for declared in declared_sizes(entrypoint, target, made):
        size = wanted.get((declared.dimension.name, declared.size))
        if size is not None and declared.is_in_range:
            sizes.setdefault(id(declared.tensor), (declared.tensor, {}))[1][declared.index] = size
    for tensor, each in sizes.values():
        with torch.inference_mode(tensor.is_inference()):
            tensor.data = like_stretched(tensor.detach(), each)
    return replace(made, resized=sample.resized)


def resizable(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be made in another size: not if it is of a class that keeps more than values."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


def in_words(sizes: Sizes) -> str:
    """`height 64, width 64`."""
    return ", ".join(f"{name} {size}" for name, _, size in sizes)
