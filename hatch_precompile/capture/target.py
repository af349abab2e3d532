"""Finds what an entrypoint's configuration names, and calls it the way the wheel's users will."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.errors import CaptureError

__all__ = ["Sample", "Target", "as_sample", "find_target", "mark_dynamic", "mode_context", "samples_of"]


@dataclass(frozen=True)
class Sample:
    """One set of inputs."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A resolved entrypoint.

    kind: "module class", "method" or "function"; call: what a user calls, on the instance where there
    is one; compiled: the same under torch.compile, given a backend.
    """

    kind: str
    call: Callable[..., Any]
    signature: inspect.Signature
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]]


def find_reference(reference: str, key: str) -> Any:
    """The object a "pkg.mod:qual.name" names. Raises CaptureError naming the key."""
    module_name, _, qualname = reference.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise CaptureError(f'{key} = "{reference}": cannot import {module_name} ({error})') from error
    for part in qualname.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise CaptureError(f'{key} = "{reference}": {module_name} has no {qualname}') from None
    return value


def find_target(entrypoint: Entrypoint) -> Target:
    """Import the target, make its instance where it needs one. Raises CaptureError naming the key."""
    module_name, _, qualname = entrypoint.target.partition(":")
    value = find_reference(entrypoint.target, "target")
    if isinstance(value, type):
        if not issubclass(value, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}" is a class but no torch.nn.Module; '
                f'name one of its methods, as in "{entrypoint.target}.method"'
            )
        instance = _instance(entrypoint, value)
        return Target(
            "module class",
            instance,
            inspect.signature(instance.forward),
            lambda backend: torch.compile(instance, backend=backend),
        )
    owner_name, _, method = qualname.rpartition(".")
    owner = find_reference(f"{module_name}:{owner_name}", "target") if owner_name else None
    if isinstance(owner, type):
        if isinstance(inspect.getattr_static(owner, method), (staticmethod, classmethod)):
            bound = value
        else:
            bound = getattr(_instance(entrypoint, owner), method)
        if method == "forward" and issubclass(owner, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}": name the class, "{module_name}:{owner_name}", '
                "so that calling the module runs the compiled code"
            )
        return Target("method", bound, inspect.signature(bound), lambda b: torch.compile(bound, backend=b))
    if not inspect.isfunction(value):
        raise CaptureError(
            f'target = "{entrypoint.target}" is a {type(value).__name__}; '
            "a target is an nn.Module class, a method or a Python function"
        )
    if entrypoint.instance is not None:
        raise CaptureError(f'instance is set, but the target "{entrypoint.target}" is a function')
    return Target("function", value, inspect.signature(value), lambda b: torch.compile(value, backend=b))


def _instance(entrypoint: Entrypoint, cls: type) -> Any:
    factory = cls if entrypoint.instance is None else find_reference(entrypoint.instance, "instance")
    what = f'instance = "{entrypoint.instance}"' if entrypoint.instance else f"{cls.__qualname__}()"
    try:
        instance = factory()
    except Exception as error:
        hint = "" if entrypoint.instance else '; name a callable that makes one with the key "instance"'
        raise CaptureError(f"{what} raised {type(error).__name__}: {error}{hint}") from error
    if not isinstance(instance, cls):
        raise CaptureError(f"{what} returned a {type(instance).__qualname__}, not a {cls.__qualname__}")
    if isinstance(instance, torch.nn.Module) and entrypoint.mode != "train":
        instance.eval()
    return instance


def samples_of(entrypoint: Entrypoint) -> Iterator[Sample]:
    """Call the entrypoint's samples function. Raises CaptureError for a sample of another form."""
    function = find_reference(entrypoint.samples, "samples")
    try:
        samples = list(function())
    except Exception as error:
        raise CaptureError(
            f'samples = "{entrypoint.samples}" raised {type(error).__name__}: {error}'
        ) from error
    if not samples:
        raise CaptureError(f'samples = "{entrypoint.samples}" returned no sample')
    for number, sample in enumerate(samples, 1):
        yield as_sample(sample, f'samples = "{entrypoint.samples}": sample {number}')


def as_sample(sample: Any, what: str) -> Sample:
    """Read one of the forms a sample has. Raises CaptureError, which calls it `what`, for another form."""
    if isinstance(sample, dict):
        return Sample((), sample)
    if isinstance(sample, tuple):
        if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
            return Sample(*sample)
        return Sample(sample, {})
    raise CaptureError(
        f"{what} is a {type(sample).__name__}; "
        "a sample is a tuple (args), a dict (kwargs) or a pair (tuple, dict)"
    )


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
        torch._dynamo.mark_static(tensor, index)
        return
    torch._dynamo.mark_dynamic(tensor, index, min=low, max=high)


def mode_context(mode: str) -> AbstractContextManager[Any]:
    """The grad mode an entrypoint's calls are made in."""
    if mode == "inference":
        return torch.inference_mode()
    return torch.no_grad() if mode == "no_grad" else torch.enable_grad()
