"""Broadcasting: tensors of one size are not asked whether it is 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.tracing.any_size.expressions import expression, is_backed

__all__ = ["broadcasting_of_any_size"]


@contextlib.contextmanager
def broadcasting_of_any_size() -> Iterator[None]:
    """Whether a size is 1 is asked before it is broadcast, also where all tensors have that size."""
    from torch import _meta_registrations, _refs
    from torch._refs import _conversions
    from torch._subclasses import fake_impls

    broadcast, expand, infer = _refs._broadcast_shapes, _refs._maybe_broadcast, fake_impls.infer_size

    def broadcast_shapes(*shapes: Any) -> Any:
        if not all(shape is None or isinstance(shape, Sequence) for shape in shapes):
            return broadcast(*shapes)
        known, asked = _one_answer([shape for shape in shapes if shape is not None])
        return _filled(broadcast(*asked), known)

    def maybe_broadcast(*args: Any, **kwargs: Any) -> Any:
        shapes = {tuple(map(expression, arg.shape)) for arg in args if isinstance(arg, torch.Tensor)}
        return args if len(shapes) == 1 else expand(*args, **kwargs)

    def infer_size(a: Any, b: Any) -> Any:
        known, asked = _one_answer([a, b])
        return tuple(_filled(infer(*asked), known))

    replaced = [
        *((module, "_broadcast_shapes", broadcast_shapes) for module in (_refs, _meta_registrations)),
        *((module, "_maybe_broadcast", maybe_broadcast) for module in (_refs, _meta_registrations)),
        (_conversions, "_broadcast_shapes", broadcast_shapes),
        (fake_impls, "infer_size", infer_size),
    ]
    with contextlib.ExitStack() as stack:
        for each in replaced:
            stack.enter_context(patch.object(*each))
        yield


def _one_answer(shapes: Sequence[Sequence[Any]]) -> tuple[dict[int, Any], list[list[Any]]]:
    """The sizes, counted from the end, that have one answer for any value, and the shapes without them."""
    known: dict[int, Any] = {}
    for place in range(-1, -1 - max(map(len, shapes), default=0), -1):
        sizes = {expression(shape[place]): shape[place] for shape in shapes if len(shape) >= -place}
        sizes.pop(1, None)
        if (
            len(sizes) == 1
            and isinstance(size := next(iter(sizes.values())), torch.SymInt)
            and is_backed(size)
        ):
            known[place] = size
    asked = [
        [1 if place - len(shape) in known else size for place, size in enumerate(shape)] for shape in shapes
    ]
    return known, asked


def _filled(sizes: Any, known: dict[int, Any]) -> Any:
    if sizes is not None:
        sizes = list(sizes)
        for place, size in known.items():
            sizes[place] = size
    return sizes
