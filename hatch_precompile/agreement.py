"""Whether two calls agree: their outputs, the inputs as they left them, their gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hatch_precompile.errors import VerifyError

__all__ = ["compare", "run_backward"]


def run_backward(output: Any) -> None:
    """The backward pass from the sum of every output that needs a gradient."""
    losses = [
        value.sum()
        for _, value in _leaves(output)
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]  # fmt: skip
    if losses:
        sum(losses[1:], losses[0]).backward()


def compare(actual: Any, expected: Any, label: str, *, values: bool = True) -> float:
    """The largest absolute difference. Raises VerifyError where the two do not agree.

    values: compare the tensors by torch.testing's tolerances, else only their shapes and dtypes.
    """
    ours, theirs = dict(_leaves(actual)), dict(_leaves(expected))
    if list(ours) != list(theirs):
        raise VerifyError(f"{label}: the bundle returns {list(ours)}, eager {list(theirs)}")
    largest = 0.0
    for path, value in ours.items():
        other = theirs[path]
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (int, float, str, bool, bytes, type(None))) and value != other:
                raise VerifyError(f"{label}: {path} is {value!r}, with eager {other!r}")
            continue
        if type(value) is not type(other):
            raise VerifyError(f"{label}: {path} is a {type(value).__name__}, eager a {type(other).__name__}")
        if not values:
            if (value.shape, value.dtype) != (other.shape, other.dtype):
                raise VerifyError(f"{label}: {path} is {value.dtype} {tuple(value.shape)}, not as with eager")
            continue
        try:
            torch.testing.assert_close(value, other, equal_nan=True)
        except AssertionError as error:
            raise VerifyError(f"{label}: {path} differs from eager: {error}") from None
        if value.numel() and not value.is_complex():
            largest = max(
                largest, float((value.detach().double() - other.detach().double()).abs().nan_to_num().max())
            )
    return largest


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Mapping, tuple, list)):
        yield f"type of {path or 'it'}", type(value).__qualname__
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for spec in dataclasses.fields(value):
            yield from _leaves(getattr(value, spec.name), f"{path}.{spec.name}")
    else:
        yield path, value
