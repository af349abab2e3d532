"""Operators that end in a library of NVIDIA's which does not start without a GPU: while launches are recorded
they answer with tensors that nobody can read, so that a call goes on behind them.

Products of matrices and gradients of convolutions are in standin.c, as torch calls these without its
dispatcher. Seen in torch 2.11.0 and 2.13.0.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

__all__ = ["libraries_passed_over"]

_aten = torch.ops.aten


def _as_convolution(*args: Any) -> Any:
    """`_convolution` takes what cuDNN is set to, too."""
    return _aten.convolution.default(*args[:9])


def _as_cudnn_attention(query: Any, key: Any, value: Any, bias: Any, *others: Any, **scale: Any) -> Any:
    """`_cudnn_attention_forward` has between these where sequences begin, and how long they are."""
    return _aten._scaled_dot_product_cudnn_attention.default(query, key, value, bias, *others[4:], **scale)


# By the name of the operator, what knows the sizes and strides of its results.
_OPERATORS: dict[str, Callable[..., Any]] = {
    "_convolution": _as_convolution,
    "_cudnn_attention_backward": _aten._scaled_dot_product_cudnn_attention_backward.default,
    "_cudnn_attention_forward": _as_cudnn_attention,
    **{
        name: getattr(_aten, name).default
        for kind in ("flash", "efficient")
        for name in (f"_{kind}_attention_forward", f"_{kind}_attention_backward")
    },
}


def _unknown(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _answer(operator: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*args: Any, **kwargs: Any) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=False) as mode:
            given = _pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
            results = operator(*given[0], **given[1])
        return _pytree.tree_map_only(torch.Tensor, _unknown, results)

    return answer


@contextlib.contextmanager
def libraries_passed_over() -> Iterator[None]:
    """The operators answer so while the block runs."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an operator is another one: it is meant to be
            for name, operator in _OPERATORS.items():
                library.impl(name, _answer(operator), "CUDA", allow_override=True)
        yield
    finally:
        library._destroy()
