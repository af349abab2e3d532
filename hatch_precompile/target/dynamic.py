"""The dimensions of a sample that an entrypoint declares dynamic, marked for dynamo."""

from __future__ import annotations

import inspect

import torch

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.errors import CaptureError
from hatch_precompile.target.call import Sample
from hatch_precompile.target.finding import Target
from hatch_precompile.torch_internals.tensors import mark_range, mark_static

__all__ = ["mark_dynamic"]


def mark_dynamic(entrypoint: Entrypoint, target: Target, sample: Sample) -> None:
    """Mark the declared dimensions of a sample's tensors; one whose size is out of range stays static."""
    try:
        bound = target.signature.bind(*sample.args, **sample.kwargs)
    except TypeError as error:
        raise CaptureError(f"a sample does not fit the signature of {entrypoint.target}: {error}") from None
    arguments = dict(bound.arguments)
    for parameter in target.signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
    for name, dimensions in entrypoint.dynamic_shapes.items():
        if name not in arguments:
            if name in target.signature.parameters or _takes_any_keyword(target.signature):
                continue  # this sample leaves the argument out
            raise CaptureError(
                f"dynamic-shapes.{name}: {entrypoint.target} has no such argument; "
                f"it has {', '.join(target.signature.parameters)}"
            )
        value = arguments[name]
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise CaptureError(f"dynamic-shapes.{name}: a {type(value).__name__}, not a tensor")
        for index, dimension in dimensions.items():
            _mark(name, value, index, dimension)
    for name in entrypoint.dynamic_numbers:
        if name not in target.signature.parameters:
            raise CaptureError(
                f"dynamic-numbers: {entrypoint.target} has no argument {name}; "
                f"it has {', '.join(target.signature.parameters)}"
            )
        if name in arguments and type(arguments[name]) not in (int, float):
            raise CaptureError(f"dynamic-numbers: {name} is a {type(arguments[name]).__name__}, not a number")


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())


def _mark(name: str, tensor: torch.Tensor, index: int, dimension: Dimension) -> None:
    if index >= tensor.dim():
        raise CaptureError(f"dynamic-shapes.{name}.{index}: the sample has {tensor.dim()} dimensions")
    size = tensor.size(index)
    low, high = dimension.min, dimension.max
    # 0 and 1 mean something else to broadcasting; dynamo never lets them stand for other sizes.
    outside = (low is not None and size < low) or (high is not None and size > high)
    if size < 2 or outside:
        mark_static(tensor, index)
        return
    mark_range(tensor, index, low, high)
