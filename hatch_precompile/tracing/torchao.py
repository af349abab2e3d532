"""What torchao's quantized weights say of themselves, where attributes alone say it.

Dynamo compares what `__tensor_flatten__` of a tensor subclass returns at each call. torchao's share one
method, which reads attributes by their names: some microseconds of Python for each weight, and more where
the processor has just done something else. Looking at the attributes themselves says the same.
Seen in torchao 0.18.0 (torchao/utils.py: `TorchAOBaseTensor`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["FLATTEN", "Flattened", "flattened_by_names"]

FLATTEN = "__tensor_flatten__"

# Attributes of a class that list names of its instances' attributes: what all have, and what some have not.
_LISTS = ("tensor_data_names", "tensor_attribute_names")
_OPTIONAL = ("optional_tensor_data_names", "optional_tensor_attribute_names")
_METHOD_MENTIONS = {*_LISTS, *_OPTIONAL, "hasattr", "getattr", "copy", "append", "NotImplementedError"}
# Not attributes but torch's own properties, which a guard on the tensor has compared.
_OF_TENSORS = {"dtype": torch.Tensor.dtype, "device": torch.Tensor.device}


@dataclass(frozen=True)
class Flattened:
    """What the result of a `__tensor_flatten__` depends on.

    method: the function; lists: attribute of the class -> the names in it, None where there is none;
    tensors: optional attribute -> whether it has a tensor; attributes: name -> value, but for what torch
    itself knows of a tensor
    """

    method: Any
    lists: dict[str, list[str] | None]
    tensors: dict[str, bool]
    attributes: dict[str, Any]


def flattened_by_names(tensor: torch.Tensor) -> Flattened | None:
    """None for a tensor whose class has another method, or says otherwise what torch knows of it."""
    utils: Any = sys.modules.get("torchao.utils")
    if not hasattr(utils, "TorchAOBaseTensor"):
        return None
    method, cls = utils.TorchAOBaseTensor.__tensor_flatten__, type(tensor)
    if not issubclass(cls, utils.TorchAOBaseTensor) or getattr(cls, FLATTEN) is not method:
        return None
    if hasattr(cls, "__metadata_guard__"):
        return None
    if not _METHOD_MENTIONS.issuperset(method.__code__.co_names) or not _has_torchs_properties(cls, utils):
        return None
    names: dict[str, list[str] | None] = {name: getattr(cls, name, None) for name in (*_LISTS, *_OPTIONAL)}
    if any(type(each) is not list for name, each in names.items() if name in _LISTS or each is not None):
        return None
    if not vars(tensor).keys().isdisjoint({*names, FLATTEN}):
        return None
    tensors, optional_tensors, attributes, optional_attributes = (
        names[name] or [] for name in (_LISTS[0], _OPTIONAL[0], _LISTS[1], _OPTIONAL[1])
    )
    found = Flattened(
        method,
        names,
        {name: getattr(tensor, name) is not None for name in optional_tensors},
        {name: getattr(tensor, name) for name in (*attributes, *optional_attributes)},
    )
    present = [*tensors, *(name for name, is_there in found.tensors.items() if is_there)]
    if (present, found.attributes) != method(tensor):
        return None
    for name in _OF_TENSORS:
        found.attributes.pop(name, None)
    return found


def _has_torchs_properties(cls: type, utils: Any) -> bool:
    """Whether a class's `__torch_function__` leaves to torch what it knows of a tensor."""
    overrides: Any = getattr(cls, "__torch_function__", None)
    if getattr(overrides, "__func__", None) is not getattr(utils, "_dispatch__torch_function__", None):
        return False
    table: Any = getattr(cls, "_TORCH_FN_TABLE", {})
    own = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    if any(name in vars(base) for base in own for name in _OF_TENSORS):
        return False
    return not any(each.__get__ in table.get(cls, {}) for each in _OF_TENSORS.values())
