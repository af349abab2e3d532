"""Convolutions: which of its functions ATen would take decides nothing that a trace has to know."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.tracing.any_size.expressions import is_backed, lies, varies

__all__ = ["convolutions_of_any_size"]

# One on each side of all limits in ATen's choice of a convolution (aten/src/ATen/native/Convolution.cpp,
# `use_mkldnn` and `use_nnpack`): images at once, and elements of them all.
_SIDES = (1, 1 << 12)

_SOME = itertools.repeat(7)


@contextlib.contextmanager
def convolutions_of_any_size() -> Iterator[None]:
    """Which of its functions ATen takes for a convolution depends on sizes, and is asked for one thing: how
    the result lies in memory. Where all of them would lay it out alike there is nothing to ask.

    ATen chooses again when the convolution runs.
    """
    from torch._subclasses.fake_impls import op_implementations_dict as implementations

    select, determine = torch._C._select_conv_backend, torch._C._conv_determine_backend_memory_format
    formats: list[torch.memory_format] = []  # what was found of the convolution that is being traced

    def select_for_any(input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 - by name
        backends = _backends(input, weight, lambda x, weight: select(x, weight, *args, **kwargs))
        found = {determine(*_as_images(_like(input, _SOME), weight), backend) for backend in backends}
        if len(found) != 1:
            return select(input, weight, *args, **kwargs)
        formats.extend(found)
        return backends[0]

    def determine_for_any(x: Any, weight: Any, backend: Any) -> torch.memory_format:
        # Turned to channels last by torch, the result would be asked whether it is so already.
        found: torch.memory_format = torch.contiguous_format if formats else determine(x, weight, backend)
        return found

    def laid_out(own: Callable[..., Any]) -> Callable[..., Any]:
        def convolution(fake_mode: Any, *args: Any, **kwargs: Any) -> Any:
            formats.clear()
            try:
                result = own(fake_mode, *args, **kwargs)
                if formats and formats[0] is not torch.contiguous_format:
                    with fake_mode:
                        return _channels_last(result)
                return result
            finally:
                formats.clear()

        return convolution

    aten = torch.ops.aten
    operators = [op.default for op in (aten.convolution, aten._convolution, aten.convolution_backward)]
    # Torch 2.11 makes convolutions of the second before it asks.
    kept = {operator: implementations[operator] for operator in operators if operator in implementations}
    implementations.update({operator: laid_out(own) for operator, own in kept.items()})
    try:
        with patch.multiple(
            torch._C,
            _select_conv_backend=select_for_any,
            _conv_determine_backend_memory_format=determine_for_any,
        ):
            yield
    finally:
        implementations.update(kept)


def _backends(x: Any, weight: Any, select: Callable[[Any, Any], Any]) -> list[Any]:
    """What ATen would take for any sizes; nothing where they are known, or how the image lies is not."""
    varying = [size for size in (*x.shape, *weight.shape) if isinstance(size, torch.SymInt)]
    known = _order(x) is not None and (not varies(weight) or _order(weight) is not None)
    if not varying or x.is_mkldnn or not known or not all(map(is_backed, varying)):
        return []
    found = []
    for sizes in itertools.product(_SIDES, repeat=len(varying)):
        given = iter(sizes)
        # An image that is too small for the filter is none that such a call has.
        with contextlib.suppress(RuntimeError):
            found.append(select(_like(x, given), _like(weight, given)))
    return list(dict.fromkeys(found))


def _like(tensor: Any, sizes: Iterator[int]) -> Any:
    """A tensor that lies as this one does, with other sizes where they vary."""
    order = _order(tensor)
    if order is None or not varies(tensor):
        return tensor
    shape = [next(sizes) if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    strides = [1] * len(shape)
    for outer, inner in itertools.pairwise(reversed(order)):
        strides[inner] = strides[outer] * max(shape[outer], 1)
    return tensor.new_empty_strided(shape, strides)


def _order(tensor: Any) -> Sequence[int] | None:
    """The dimensions, outermost first, of a tensor that is contiguous or channels last for all its sizes."""
    if lies(tensor, range(tensor.ndim)):
        return range(tensor.ndim)
    last = (0, *range(2, tensor.ndim), 1)
    return last if tensor.ndim > 3 and lies(tensor, last) else None


def _as_images(x: Any, weight: Any) -> tuple[Any, Any]:
    """As torch/_subclasses/fake_impls.py (`conv`) has them where it asks how a result lies."""
    if weight.dim() == 3:
        return x.contiguous().unsqueeze(2), weight.unsqueeze(2)
    return x, weight


def _channels_last(result: Any) -> Any:
    """The same tensor, or the gradients of an image and of a weight, lying otherwise."""
    if isinstance(result, (tuple, list)):
        image, weight, bias = result
        return _channels_last(image), _channels_last(weight), bias
    if result is None:
        return None
    strides, stride = [1] * result.ndim, 1
    for dimension in (1, *reversed(range(2, result.ndim)), 0):
        strides[dimension] = stride
        stride = stride * result.shape[dimension]
    return result.new_empty_strided(result.shape, strides)
