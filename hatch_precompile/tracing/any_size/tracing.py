"""All of it at once, and ranges that the trace narrows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hatch_precompile.tracing.any_size.broadcasting import broadcasting_of_any_size
from hatch_precompile.tracing.any_size.compiled import compiled_for_any_size
from hatch_precompile.tracing.any_size.convolutions import convolutions_of_any_size
from hatch_precompile.tracing.any_size.layouts import layouts_of_any_size, views_of_any_size

__all__ = ["sizes_as_declared"]


@contextlib.contextmanager
def sizes_as_declared() -> Iterator[None]:
    """Trace for the whole range that a size was declared to have, as far as the operations allow."""
    with (
        convolutions_of_any_size(),
        layouts_of_any_size(),
        views_of_any_size(),
        broadcasting_of_any_size(),
        compiled_for_any_size(),
        _ranges_are_wishes(),
    ):
        yield


def _ranges_are_wishes() -> AbstractContextManager[Any]:
    """Have dynamo make the entry that it can, where that serves less than the range of a dimension."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    produce = ShapeEnv.produce_guards_verbose

    def produce_for_less(self: Any, *args: Any, input_contexts: Any = None, **kwargs: Any) -> Any:
        for context in input_contexts or ():
            _soften(context)
        return produce(self, *args, input_contexts=input_contexts, **kwargs)

    return patch.object(ShapeEnv, "produce_guards_verbose", produce_for_less)


def _soften(context: Any) -> None:
    constraints = getattr(context, "constraint_sizes", None) or []
    for number, constraint in enumerate(constraints):
        if hasattr(constraint, "warn_only"):
            constraints[number] = dataclasses.replace(constraint, warn_only=True)
    for inner in getattr(context, "inner_contexts", {}).values():
        _soften(inner)
