"""What decides, of a value, how a call with it is traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

from hatch_precompile.static_lookup import attribute, dict_of, is_a, is_exactly, module_of, qualname_of

__all__ = ["described"]

_DEEPEST = 12
_PLAIN = (str, bytes, bool, int, float, complex, torch.dtype, torch.device)


def described(value: Any, *, attributes: bool = False) -> Any:
    """Of tensors all but the data; of other things kinds, values and what they contain, as lists of text.

    attributes: of objects too, whatever they have
    """
    return list(_Description(attributes).parts(value, 0))


class _Description:
    def __init__(self, attributes: bool) -> None:
        self._attributes = attributes
        # By number, in the order they are met: what refers to itself ends there.
        self._seen: dict[int, int] = {}

    def parts(self, value: Any, depth: int) -> Iterator[Any]:
        kind = type(value)
        yield f"{module_of(kind)}.{qualname_of(kind)}"
        if is_a(value, torch.Tensor):
            yield (str(value.dtype), str(value.device), tuple(value.shape), value.requires_grad)
            if value.layout is torch.strided:
                yield (value.stride(), value.storage_offset())
            else:
                yield str(value.layout)
        elif value is None or is_exactly(value, *_PLAIN):
            yield repr(value)
        elif is_a(value, str, bytes, int, float, complex):  # one derived from them, as it is without that
            base = next(base for base in (str, bytes, int, float, complex) if is_a(value, base))
            yield base.__repr__(value)
        elif depth > _DEEPEST:
            yield "deeper"
        elif is_a(value, dict):
            for key, item in dict.items(value):
                yield (list(self.parts(key, depth + 1)), list(self.parts(item, depth + 1)))
        elif is_a(value, Mapping):
            for key, item in value.items():
                yield (list(self.parts(key, depth + 1)), list(self.parts(item, depth + 1)))
        elif is_a(value, list, tuple):
            for item in (list if is_a(value, list) else tuple).__iter__(value):
                yield list(self.parts(item, depth + 1))
        elif is_a(value, set, frozenset):
            items = (set if is_a(value, set) else frozenset).__iter__(value)
            yield sorted(repr(list(self.parts(item, depth + 1))) for item in items)
        elif attribute(kind, "__dataclass_fields__") is not None:
            for field in dataclasses.fields(kind):
                yield (field.name, list(self.parts(attribute(value, field.name), depth + 1)))
        elif self._attributes and not is_a(value, type, ModuleType, FunctionType, torch.nn.Module):
            yield from self._of_object(value, depth)

    def _of_object(self, value: Any, depth: int) -> Iterator[Any]:
        if id(value) in self._seen:
            yield self._seen[id(value)]
            return
        self._seen[id(value)] = len(self._seen)
        for name, item in dict_of(value).items():
            yield (name, list(self.parts(item, depth + 1)))
