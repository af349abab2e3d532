"""What decides, of a value, how a call with it is traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

__all__ = ["described"]

_DEEPEST = 12


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
        yield f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, torch.Tensor):
            yield (str(value.dtype), str(value.device), tuple(value.shape), value.requires_grad)
            if value.layout is torch.strided:
                yield (value.stride(), value.storage_offset())
            else:
                yield str(value.layout)
        elif isinstance(value, (str, bytes, int, float, complex, type(None), torch.dtype, torch.device)):
            yield repr(value)
        elif depth > _DEEPEST:
            yield "deeper"
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield (list(self.parts(key, depth + 1)), list(self.parts(item, depth + 1)))
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield list(self.parts(item, depth + 1))
        elif isinstance(value, (set, frozenset)):
            yield sorted(repr(list(self.parts(item, depth + 1))) for item in value)
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield (field.name, list(self.parts(getattr(value, field.name, None), depth + 1)))
        elif self._attributes and not isinstance(value, (type, ModuleType, FunctionType, torch.nn.Module)):
            yield from self._of_object(value, depth)

    def _of_object(self, value: Any, depth: int) -> Iterator[Any]:
        if id(value) in self._seen:
            yield self._seen[id(value)]
            return
        self._seen[id(value)] = len(self._seen)
        for name, item in getattr(value, "__dict__", {}).items():
            yield (name, list(self.parts(item, depth + 1)))
