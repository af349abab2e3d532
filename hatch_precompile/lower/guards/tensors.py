"""Tensor checks of a guard function: which tensors one C++ call covers, and what they must look like."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from hatch_precompile.lower.guards.builder import GuardText, type_of, unsupported
from hatch_precompile.lower.guards.checks import Check
from hatch_precompile.lower.guards.expressions import Constant, Name, TensorsAgree, Variable, literal
from hatch_precompile.lower.names import Namer
from hatch_precompile.tracing.guardtree import GuardNode, Leaf
from hatch_precompile.tracing.tensors import dispatch_key_set

__all__ = ["CheckedTensor", "TensorGroup", "TensorSpec", "distinguish", "require_tensors"]

# A tensor's node, dynamo's check of it, and its variable in the guard function.
CheckedTensor = tuple[GuardNode, Leaf, Variable | Constant]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What one tensor of a group must look like, stored as a tuple of these fields.

    parameter: whether it is a `torch.nn.Parameter`; size, stride: those at the build; dispatch_keys: as
    `DispatchKeySet.raw_repr()` gives them; sizes, strides: what is checked, None where they may vary
    """

    parameter: bool
    type: Any  # a constant: the tensor's exact class
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    dispatch_keys: int
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]

    def encoded(self) -> tuple[Any, ...]:
        return tuple(getattr(self, spec.name) for spec in dataclasses.fields(self))


@dataclasses.dataclass(frozen=True)
class TensorGroup:
    """Tensors checked in one call, which must be distinct objects. A model has many tensors of few kinds, so
    each kind stands once."""

    kinds: tuple[TensorSpec, ...]
    numbers: tuple[int, ...]  # per tensor, in the order of the call: its kind

    def encoded(self) -> tuple[Any, ...]:
        return tuple(kind.encoded() for kind in self.kinds), self.numbers


def distinguish(text: GuardText, leaf: Leaf, variable: Variable | Constant) -> None:
    """Part of a tensor's check as plain Python: it costs a failing entry less than the C++ call would.

    Each of them is implied by the C++ check, which is made all the same.
    """
    value, sizes = leaf.args[:2]
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return
    name = "torch.Tensor" if type(value) is torch.Tensor else "torch.nn.Parameter"
    text.add(Check("TENSOR_CLASS", type_of(variable).is_(Name(name))))
    if value.is_cuda:
        text.add(Check("TENSOR_DEVICE", variable.attribute("is_cuda").is_(literal(True))))
    text.add(Check("TENSOR_DTYPE", variable.attribute("dtype").is_(Name(str(value.dtype)))))
    text.add(Check("TENSOR_RANK", variable.attribute("dim").call().equals(literal(len(sizes)))))
    for dimension, size in enumerate(sizes):
        if size is not None:
            here = variable.attribute("size").call(literal(dimension))
            text.add(Check("TENSOR_SIZE", here.equals(literal(size))))


def require_tensors(
    text: GuardText, tensors: list[CheckedTensor], *, on_gpu: bool = False
) -> tuple[TensorGroup, ...]:
    """Write the checks of all tensors; returns the groups, in the order of their names T0, T1, ...

    TensorGuards refuses an object it meets twice: what was one object at the build is in groups apart.
    on_gpu: a group is for whichever GPU its tensors are on, and all groups for the same one.
    """
    groups: list[list[CheckedTensor]] = []
    for item in tensors:
        for group in groups:
            if all(other.value is not item[0].value for other, _, _ in group):
                group.append(item)
                break
        else:
            groups.append([item])
    for index, group in enumerate(groups):
        text.require(TensorsAgree(index, tuple(variable for _, _, variable in group)), "TENSOR_MATCH")
        text.by_kind["TENSOR_MATCH"] += len(group) - 1
    if on_gpu:
        lying_there = [[variable for _, leaf, variable in group if leaf.args[0].is_cuda] for group in groups]
        one_of_each = [variables[0] for variables in lying_there if variables]
        text.require(Name("gpu").attribute("serves").call(*one_of_each), "GPU")
    return tuple(_group([_spec(text.namer, node, leaf) for node, leaf, _ in group]) for group in groups)


def _group(specs: list[TensorSpec]) -> TensorGroup:
    numbers: dict[tuple[Any, ...], int] = {}
    order = [numbers.setdefault(_plain(spec.encoded()), len(numbers)) for spec in specs]
    return TensorGroup(tuple(specs[order.index(number)] for number in range(len(numbers))), tuple(order))


def _plain(encoded: Any) -> Any:
    """Something hashable, equal for equal specs: references are lists."""
    return tuple(map(_plain, encoded)) if isinstance(encoded, (tuple, list)) else encoded


def _spec(namer: Namer, node: GuardNode, leaf: Leaf) -> TensorSpec:
    value, sizes, strides = leaf.args[:3]
    if value.layout is not torch.strided:
        raise unsupported(f"a tensor with the layout {value.layout}", node, leaf)
    return TensorSpec(
        parameter=type(value) is torch.nn.Parameter,
        type=namer.reference(type(value)),
        size=tuple(value.size()),
        stride=tuple(value.stride()),
        dtype=str(value.dtype).removeprefix("torch."),
        device=str(value.device),
        requires_grad=value.requires_grad,
        dispatch_keys=dispatch_key_set(leaf.args),
        sizes=tuple(sizes),
        strides=tuple(strides),
    )
