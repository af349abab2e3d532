"""Helpers that bytecode calls, beside dynamo's own of the same names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo import utils

from hatch_precompile.runtime import runtime

OURS = runtime("loading.helpers").DynamoHelpers("torch._dynamo.utils")
NAMES = [name for name in vars(type(OURS)) if not name.startswith("_")]


class Guarded:
    """Has its own mind about attributes."""

    scale = 1.0

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __getattribute__(self, name: str) -> Any:
        raise AttributeError(name)


def set_and_deleted(helpers: Any, value: Any) -> list[Any]:
    helpers.object_setattr_ignore_descriptor(value, "scale", 2.0)
    helpers.object_setattr_ignore_descriptor(value, "gone", 3.0)
    helpers.object_delattr_ignore_descriptor(value, "gone")
    kind = threading.local if isinstance(value, threading.local) else object
    return sorted(kind.__getattribute__(value, "__dict__").items())


CASES: dict[str, Callable[[Any], Any]] = {
    "call_size": lambda helpers: helpers.call_size(torch.ones(2, 3), 1),
    "call_stride": lambda helpers: helpers.call_stride(torch.ones(2, 3), 0),
    "call_storage_offset": lambda helpers: helpers.call_storage_offset(torch.ones(6)[2:]),
    "dict_getitem": lambda helpers: helpers.dict_getitem({"a": 1}, "a"),
    "dict_keys_getitem": lambda helpers: helpers.dict_keys_getitem({"a": 1, "b": 2, "c": 3}, 1),
    "iter_next": lambda helpers: helpers.iter_next(iter([4, 5])),
    "list_getitem": lambda helpers: helpers.list_getitem([4, 5], 1),
    "make_cell": lambda helpers: (helpers.make_cell().cell_contents, helpers.make_cell(3).cell_contents),
    "object_new": lambda helpers: type(helpers.object_new(Guarded)),
    "object_setattr_ignore_descriptor": lambda helpers: set_and_deleted(helpers, Guarded()),
    "object_delattr_ignore_descriptor": lambda helpers: set_and_deleted(helpers, threading.local()),
    "to_subclass": lambda helpers: type(helpers.to_subclass(torch.ones(2), torch.nn.Parameter)),
    "tuple_iterator_getitem": lambda helpers: helpers.tuple_iterator_getitem(iter((4, 5, 6)), 1),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_does_what_dynamos_does(name: str) -> None:
    if name.endswith("_ignore_descriptor") and not hasattr(utils, "object_delattr_ignore_descriptor"):
        pytest.skip("this torch has no such helper")
    assert CASES[name](OURS) == CASES[name](utils)


def test_any_other_is_dynamos_own() -> None:
    assert OURS.counters is utils.counters
