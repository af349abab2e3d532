"""Finds what an entrypoint's configuration names, and calls it the way the wheel's users will."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.errors import CaptureError
from hatch_precompile.torch_internals import NO_LIMIT, inside_compile

__all__ = [
    "Declared",
    "Sample",
    "Target",
    "as_sample",
    "copied",
    "copy_of",
    "find_declared",
    "find_reference",
    "find_target",
    "find_targets",
    "mark_dynamic",
    "mode_context",
    "samples_of",
]


@dataclass(frozen=True)
class Sample:
    """One set of inputs. `owner`: the object a workload called, None where the build makes one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    owner: Any = None


@dataclass(frozen=True)
class Target:
    """A resolved entrypoint.

    kind: "module class", "method" or "function"; call: what a user calls, on the instance where there
    is one; compiled: the same under torch.compile, given a backend, a function or its name.
    """

    kind: str
    call: Callable[..., Any]
    signature: inspect.Signature
    compiled: Callable[[Any], Callable[..., Any]]


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


@dataclass(frozen=True)
class Declared:
    """What a target names. `owner`: the class a method is looked up on; `attribute`: its name there."""

    kind: str
    value: Any
    owner: Any = None
    attribute: str = ""
    bare: bool = False
    """Of a method: a static or class method, which needs no object."""

    def function(self) -> Any:
        """The function whose frame is the target's own, or the outermost of its decorators' wrappers."""
        value = self.value.forward if self.kind == "module class" else self.value
        return getattr(value, "__func__", value)


def find_declared(entrypoint: Entrypoint) -> Declared:
    """Import the target. Raises CaptureError naming the key if it is nothing that can be compiled."""
    module_name, _, qualname = entrypoint.target.partition(":")
    value = find_reference(entrypoint.target, "target")
    if isinstance(value, type):
        if not issubclass(value, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}" is a class but no torch.nn.Module; '
                f'name one of its methods, as in "{entrypoint.target}.method"'
            )
        return Declared("module class", value)
    owner_name, _, method = qualname.rpartition(".")
    owner = find_reference(f"{module_name}:{owner_name}", "target") if owner_name else None
    if isinstance(owner, type):
        if method == "forward" and issubclass(owner, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}": name the class, "{module_name}:{owner_name}", '
                "so that calling the module runs the compiled code"
            )
        bare = isinstance(inspect.getattr_static(owner, method), (staticmethod, classmethod))
        return Declared("method", value, owner, method, bare)
    if not inspect.isfunction(value):
        raise CaptureError(
            f'target = "{entrypoint.target}" is a {type(value).__name__}; '
            "a target is an nn.Module class, a method or a Python function"
        )
    if entrypoint.instance is not None:
        raise CaptureError(f'instance is set, but the target "{entrypoint.target}" is a function')
    return Declared("function", value)


def find_target(entrypoint: Entrypoint, owner: Any = None) -> Target:
    """The target as it is called: on `owner`, else on an instance made here where it needs one.

    Raises CaptureError naming the key.
    """
    declared = find_declared(entrypoint)
    if declared.kind == "module class":
        instance = owner if owner is not None else _instance(entrypoint, declared.value)
        return Target(
            "module class",
            instance,
            inspect.signature(instance.forward),
            lambda backend: torch.compile(_uncompiled(instance), backend=backend),
        )
    call = declared.value
    if declared.kind == "method" and not declared.bare:
        on = owner if owner is not None else _instance(entrypoint, declared.owner)
        call = getattr(on, declared.attribute)
    return Target(
        declared.kind, call, inspect.signature(call), lambda backend: torch.compile(call, backend=backend)
    )


def _uncompiled(module: torch.nn.Module) -> Any:
    """The module, or its `forward` without the torch.compile that its class has put around it."""
    function = inside_compile(module.forward)
    if function is None:
        return module
    return MethodType(function, module) if isinstance(function, FunctionType) else function


def find_targets(entrypoint: Entrypoint, samples: Sequence[Sample]) -> list[Target]:
    """What each sample calls: the object that the workload called, or one instance for them all."""
    if entrypoint.workload is None:
        return [find_target(entrypoint)] * len(samples)
    made: dict[int, Target] = {}
    for sample in samples:
        if id(sample.owner) not in made:
            made[id(sample.owner)] = find_target(entrypoint, sample.owner)
    return [made[id(sample.owner)] for sample in samples]


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
    """Call the entrypoint's samples function, or run its workload.

    Raises CaptureError for a sample of another form, and for a workload without a call of the target.
    """
    if entrypoint.workload is not None:
        from hatch_precompile.capture.workload import recorded_calls

        yield from recorded_calls(entrypoint, entrypoint.workload)
        return
    assert entrypoint.samples is not None
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


class _Copying(TorchFunctionMode):
    """Copies of tensors that are what they are copies of: inference tensors, or of a subclass.

    Copied in another mode than they were made in, tensors would gain or lose what inference mode leaves
    out of them, and guards look at that. Torch's own copy of a subclass asks for methods that one need not
    have unless it wraps other tensors.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is not torch.Tensor.__deepcopy__:
            return function(*args, **kwargs or {})
        value, memo = args
        with torch.inference_mode(value.is_inference()):
            if type(value) in (torch.Tensor, torch.nn.Parameter) or (
                type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
                or type(value).__deepcopy__ is not torch.Tensor.__deepcopy__
            ):
                return function(*args, **kwargs or {})
            with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
                result = copy.deepcopy(value.as_subclass(torch.Tensor), memo).as_subclass(type(value))
                result.__dict__.update(copy.deepcopy(value.__dict__, memo))
                return result.requires_grad_(value.requires_grad)


def copied(sample: Sample) -> Sample:
    """The sample with a deep copy of its arguments."""
    args, kwargs = copy_of((sample.args, sample.kwargs))
    return replace(sample, args=args, kwargs=kwargs)


def copy_of(value: Any) -> Any:
    """A deep copy in which tensors are of the kind they were of."""
    with _Copying():
        return copy.deepcopy(value)


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
    if low is not None or high is not None:
        # Dynamo wants both ends of a range or none.
        low, high = (2 if low is None else low), (NO_LIMIT if high is None else high)
    torch._dynamo.mark_dynamic(tensor, index, min=low, max=high)


def mode_context(mode: str) -> AbstractContextManager[Any]:
    """The grad mode an entrypoint's calls are made in."""
    if mode == "inference":
        return torch.inference_mode()
    return torch.no_grad() if mode == "no_grad" else torch.enable_grad()
