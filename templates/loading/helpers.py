"""What bytecode calls in the place of dynamo's helpers and of Python's `random`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from itertools import islice
from types import CellType, FunctionType
from typing import Any

from ..torch_internals import torch_private

__all__ = ["DynamoHelpers", "drawing"]


class DynamoHelpers:
    """The helpers of torch._dynamo.utils that bytecode calls, without dynamo: torch 2.13 to 2.15.

    Any other helper is the real one: asking for it imports torch._dynamo, then and only then.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    dict_getitem = staticmethod(dict.__getitem__)
    iter_next = staticmethod(next)
    list_getitem = staticmethod(list.__getitem__)
    object_new = staticmethod(object.__new__)

    call_size = staticmethod(torch_private.Tensor.size)
    call_stride = staticmethod(torch_private.Tensor.stride)
    call_storage_offset = staticmethod(torch_private.Tensor.storage_offset)

    @staticmethod
    def dict_keys_getitem(table: dict[Any, Any], position: int) -> Any:
        return next(islice(dict.keys(table), position, None))

    @staticmethod
    def make_cell(content: Any = None) -> CellType:
        return CellType(content)

    @staticmethod
    def object_setattr_ignore_descriptor(value: Any, name: str, attribute: Any) -> None:
        _attributes(value)[name] = attribute

    @staticmethod
    def object_delattr_ignore_descriptor(value: Any, name: str) -> None:
        del _attributes(value)[name]

    @staticmethod
    def to_subclass(tensor: Any, cls: type) -> Any:
        return tensor.as_subclass(cls)

    @staticmethod
    def tuple_iterator_getitem(iterator: Any, position: int) -> Any:
        _, (elements,), start = iterator.__reduce__()
        return elements[start + position]

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


def _attributes(value: Any) -> dict[str, Any]:
    """The dict of an object, whatever its class does with attributes."""
    kind = threading.local if issubclass(type(value), threading.local) else object
    found: dict[str, Any] = kind.__getattribute__(value, "__dict__")
    return found


for _helper in (_attributes, *(getattr(DynamoHelpers, name) for name in vars(DynamoHelpers))):
    if isinstance(_helper, FunctionType) and not _helper.__name__.startswith("__"):
        torch_private.leave_untraced(_helper, below=True)


def drawing(calls: list[Any]) -> Callable[[], list[Any]]:
    """What makes a frame's calls of Python's `random`, each (function, arguments, keywords)."""

    def draw() -> list[Any]:
        return [function(*args, **keywords) for function, args, keywords in calls]

    torch_private.leave_untraced(draw, below=True)
    return draw


WHOLE = True
