"""Whether a tensor is in one piece, and what a view of it looks like, without asking which sizes are 1."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.tracing.any_size.expressions import (
    are_in_order,
    is_backed,
    lies,
    of_sample,
    varies,
)

__all__ = ["layouts_of_any_size", "views_of_any_size"]


@contextlib.contextmanager
def layouts_of_any_size() -> Iterator[None]:
    """Whether a tensor is contiguous is asked dimension by dimension, first whether the size is 1, where the
    stride is of no matter. Where the strides are those of a contiguous tensor whatever the sizes, it is one;
    where they are those of a tensor that is channels last, it is none.
    """
    from torch import _prims_common
    from torch._subclasses import fake_impls

    own, dense = _prims_common.is_contiguous, _prims_common._is_non_overlapping_and_dense_or_false
    last = {2: _prims_common.is_channels_last_contiguous_2d, 3: _prims_common.is_channels_last_contiguous_3d}

    def is_contiguous(a: Any, false_if_dde: bool = False) -> bool:
        if varies(a):
            if lies(a, range(a.ndim)):
                return True
            if _is_several_pixels(a) and lies(a, (0, *range(2, a.ndim), 1)):
                return False
        return own(a, false_if_dde)

    def is_channels_last(spatial: int) -> Callable[..., bool]:
        def is_channels_last_contiguous(a: Any, false_if_dde: bool = False) -> bool:
            if a.ndim == spatial + 2 and varies(a):
                if lies(a, (0, *range(2, a.ndim), 1)):
                    return True
                if _has_channels(a) and lies(a, range(a.ndim)):
                    return False
            return last[spatial](a, false_if_dde)

        return is_channels_last_contiguous

    def is_dense(sizes: Any, strides: Any) -> bool:
        order = sorted(range(len(sizes)), key=lambda dimension: of_sample(strides[dimension]), reverse=True)
        return are_in_order(sizes, strides, order) or dense(sizes, strides)

    replaced = {
        (_prims_common, "is_contiguous"): is_contiguous,
        (_prims_common, "is_channels_last_contiguous_2d"): is_channels_last(2),
        (_prims_common, "is_channels_last_contiguous_3d"): is_channels_last(3),
        (_prims_common, "_is_non_overlapping_and_dense_or_false"): is_dense,
        (fake_impls, "is_contiguous"): is_contiguous,
    }
    with contextlib.ExitStack() as stack:
        for place, function in replaced.items():
            stack.enter_context(patch.object(*place, function))
        yield


# A picture of one pixel is contiguous and channels last at once. A trace takes it for what larger ones are:
# it differs in strides of dimensions of size 1, which lead nowhere. If the sample's own has one pixel torch
# asks: the code may view that as only a contiguous tensor can be viewed.


def _is_several_pixels(tensor: Any) -> bool:
    if tensor.ndim not in (4, 5) or not _has_channels(tensor):
        return False
    return any(of_sample(size) not in (0, 1) for size in tensor.shape[2:])


def _has_channels(tensor: Any) -> bool:
    return isinstance(tensor.shape[1], int) and tensor.shape[1] > 1


@contextlib.contextmanager
def views_of_any_size() -> Iterator[None]:
    """A view is found by splitting and joining dimensions, which asks which of them are equal, or 1. Where
    all of the tensor is in one piece its view is, too.
    """
    from torch import _prims_common
    from torch._subclasses.fake_impls import op_implementations_dict as implementations

    def for_any(own: Callable[..., Any]) -> Callable[..., Any]:
        def view(fake_mode: Any, func: Any, a: Any, *shape: Any, **kwargs: Any) -> Any:
            if not (varies(a) and all(map(is_backed, a.shape)) and lies(a, range(a.ndim))):
                return own(fake_mode, func, a, *shape, **kwargs)
            sizes = _prims_common.extract_shape_from_varargs(shape, validate=False)
            sizes = _prims_common.infer_size(sizes, a.numel())
            if not sizes or not all(map(is_backed, sizes)):
                return own(fake_mode, func, a, *shape, **kwargs)
            torch._check(a.numel() == math.prod(sizes))
            return a.as_strided(sizes, _prims_common.make_contiguous_strides_for(sizes))

        return view

    operators = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
    kept = {operator: implementations[operator] for operator in operators}
    implementations.update({operator: for_any(own) for operator, own in kept.items()})
    try:
        yield
    finally:
        implementations.update(kept)
