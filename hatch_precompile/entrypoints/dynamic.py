"""The dimensions of a sample that an entrypoint declares dynamic, marked for dynamo."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.config.reading import quote_key
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.finding import Target
from hatch_precompile.errors import CaptureError
from hatch_precompile.tracing.tensors import mark_range, mark_static

__all__ = ["DeclaredSize", "declared_sizes", "mark_dynamic", "require_in_range"]


@dataclass(frozen=True)
class DeclaredSize:
    """A dimension of one tensor of a sample, as `dynamic-shapes` declares it.

    key: where, as in `x.2`; of several tensors behind one key each has a number more
    """

    key: str
    tensor: torch.Tensor
    index: int
    dimension: Dimension

    @property
    def size(self) -> int:
        """That of the sample."""
        return self.tensor.size(self.index)

    @property
    def is_in_range(self) -> bool:
        low, high = self.dimension.min, self.dimension.max
        return (low is None or self.size >= low) and (high is None or self.size <= high)


def mark_dynamic(entrypoint: Entrypoint, target: Target, sample: Sample) -> list[DeclaredSize]:
    """Mark the declared dimensions of a sample's tensors, and give them; one whose size is out of range stays
    static."""
    found = declared_sizes(entrypoint, target, sample)
    for declared in found:
        # 0 and 1 mean something else to broadcasting; dynamo never lets them stand for other sizes.
        if declared.size < 2 or not declared.is_in_range:
            mark_static(declared.tensor, declared.index)
        else:
            mark_range(declared.tensor, declared.index, declared.dimension.min, declared.dimension.max)
    return found


def require_in_range(entrypoint: Entrypoint, targets: Sequence[Target], samples: Sequence[Sample]) -> None:
    """Raise CaptureError for a declared range that no sample has a size in: nothing of it would be served."""
    outside: dict[str, list[DeclaredSize]] = {}
    served = set()
    for number, (target, sample) in enumerate(zip(targets, samples, strict=True), 1):
        for declared in declared_sizes(entrypoint, target, sample, f"sample {number}/{len(samples)}"):
            key = declared.key.partition(" ")[0]
            if declared.is_in_range:
                served.add(key)
            else:
                outside.setdefault(key, []).append(declared)
    for key, found in outside.items():
        if key not in served:
            low, high = found[0].dimension.min, found[0].dimension.max
            sizes = ", ".join(map(str, sorted({each.size for each in found})))
            wanted = f"{low or 0} or more" if high is None else f"{low or 0} to {high}"
            raise CaptureError(
                f"dynamic-shapes.{key} declares {found[0].dimension.name}, and no sample has a size of "
                f"{wanted}, but {sizes}; give one that has"
            )


def declared_sizes(
    entrypoint: Entrypoint, target: Target, sample: Sample, what: str = "a sample"
) -> list[DeclaredSize]:
    """Every dimension of a sample's tensors that is declared. Raises CaptureError, naming the key, where a
    declaration does not fit the target or the sample, which it calls `what`.
    """
    try:
        bound = target.signature.bind(*sample.args, **sample.kwargs)
    except TypeError as error:
        raise CaptureError(f"{what} does not fit {entrypoint.target}{target.signature}: {error}") from None
    arguments = dict(bound.arguments)
    for parameter in target.signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
    _check_numbers(entrypoint, target, arguments)
    found = []
    for name, dimensions in entrypoint.dynamic_shapes.items():
        argument, *steps = name.split(".")
        if argument not in arguments:
            if argument in target.signature.parameters or _takes_any_keyword(target.signature):
                continue  # this sample leaves the argument out
            raise CaptureError(
                f"dynamic-shapes.{quote_key(name)}: {entrypoint.target} has no such argument; "
                f"it has {', '.join(target.signature.parameters)}"
            )
        for number, tensor in enumerate(_tensors(arguments[argument], steps, quote_key(name))):
            for index, dimension in dimensions.items():
                key = f"{quote_key(name)}.{index}"
                if index >= tensor.dim():
                    raise CaptureError(f"dynamic-shapes.{key}: the sample has {tensor.dim()} dimensions")
                found.append(DeclaredSize(f"{key} ({number})" if number else key, tensor, index, dimension))
    return found


def _check_numbers(entrypoint: Entrypoint, target: Target, arguments: Mapping[str, object]) -> None:
    for name in entrypoint.dynamic_numbers:
        if name not in target.signature.parameters:
            raise CaptureError(
                f"dynamic-numbers: {entrypoint.target} has no argument {name}; "
                f"it has {', '.join(target.signature.parameters)}"
            )
        if name in arguments and type(arguments[name]) not in (int, float):
            raise CaptureError(f"dynamic-numbers: {name} is a {type(arguments[name]).__name__}, not a number")


def _tensors(value: object, steps: Sequence[str], name: str) -> Iterator[torch.Tensor]:
    """The tensors at the end of a path: attributes, keys and indices, and `*` for all items of a container.

    A sample may have None, or an empty container, instead: a cache that nothing is in yet.
    """
    if value is None:
        return
    if not steps:
        if not isinstance(value, torch.Tensor):
            raise CaptureError(
                f"dynamic-shapes.{name}: the sample has an object of {type(value).__name__}, not a tensor"
                f"{_advice_on(value, name)}"
            )
        yield value
        return
    step, *rest = steps
    for part in _parts(value, step, name):
        yield from _tensors(part, rest, name)


def _advice_on(value: object, name: str) -> str:
    if isinstance(value, dict) and name in value:
        return "; yield the dict itself, not in a tuple, to pass arguments by name"
    if isinstance(value, (dict, list, tuple)):
        return f'; a way to the tensors in it is one key, as "{name}.*"'
    return ""


def _parts(value: object, step: str, name: str) -> Iterable[object]:
    if step == "*" and isinstance(value, dict):
        return value.values()
    if step == "*" and isinstance(value, (list, tuple)):
        return value
    if isinstance(value, dict) and step in value:
        return [value[step]]
    if isinstance(value, (list, tuple)) and step.isdecimal():
        return value[int(step) : int(step) + 1]
    if not isinstance(value, (list, dict)) and hasattr(value, step):
        return [getattr(value, step)]
    raise CaptureError(f"dynamic-shapes.{name}: a {type(value).__name__} has no {step!r}")


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
