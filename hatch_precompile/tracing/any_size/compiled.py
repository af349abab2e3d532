"""What inductor asks of sizes while it compiles: how strides are ordered, and how exactly sums are made."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

__all__ = ["compiled_for_any_size"]


@contextlib.contextmanager
def compiled_for_any_size() -> Iterator[None]:
    with _strides_of_any_size(), _sums_of_any_size():
        yield


def _strides_of_any_size() -> AbstractContextManager[Any]:
    """Whether strides ascend is asked of each two. Where one is a multiple of the other for all sizes, the
    answer is known; where they do not ascend the tensor is copied, which is right for any size.
    """
    from torch._inductor.ir import Layout
    from torch._inductor.virtualized import V

    own = Layout.is_stride_ordered

    def is_stride_ordered(self: Any, order: Sequence[int]) -> bool:
        known = V.graph.sizevars.statically_known_equals
        places = [place for place, size in enumerate(self.size) if not known(size, 1)]
        ascending = [self.stride[place] for place in sorted(places, key=order.__getitem__)]
        answers = [_ascends(*pair) for pair in itertools.pairwise(ascending)]
        if None in answers or all(isinstance(stride, int) or stride.is_number for stride in ascending):
            return bool(own(self, order))
        return all(answers)

    return patch.object(Layout, "is_stride_ordered", is_stride_ordered)


def _ascends(left: Any, right: Any) -> bool | None:
    """Whether the right stride is a multiple of the left one, or the left of the right; None if neither."""
    import sympy

    left, right = sympy.sympify(left), sympy.sympify(right)
    if left == right:
        return True
    if left == 0 or right == 0:
        return None
    times, rest = _divided(right, left)
    if not rest and times.is_positive is not False:
        return True
    times, rest = _divided(left, right)
    return False if not rest and times.is_positive is not False else None


def _divided(whole: Any, by: Any) -> tuple[Any, bool]:
    """The quotient of two products of sizes, and whether something is left."""
    import sympy

    quotient = sympy.cancel(whole / by)
    return quotient, quotient.as_numer_denom()[1] != 1


def _sums_of_any_size() -> AbstractContextManager[Any]:
    """Sums of more than 4096 numbers are made more exactly, which takes longer. Where they may be so many
    they are made so; if nothing says how many they may be, torch asks.
    """
    from torch._inductor.codegen.cpp import CppKernel
    from torch._inductor.virtualized import V

    own = CppKernel.need_use_acc_helper

    def need_use_acc_helper(self: Any, reduction_type: str, dtype: Any, use_scalar: bool) -> bool:
        if reduction_type == "sum" and self.call_ranges is not None:
            ranges = self.call_ranges[self.reduction_depth :]
            if not ranges:  # a sum of one number, of which torch makes a TypeError
                return False
            size = math.prod(ranges)
            if getattr(size, "free_symbols", None):
                bounds = V.graph.sizevars.shape_env.bound_sympy(size)
                if bounds.upper.is_finite and bounds.lower <= _FEW < bounds.upper:
                    return bool(own(_Large(), reduction_type, dtype, use_scalar))
        return bool(own(self, reduction_type, dtype, use_scalar))

    return patch.object(CppKernel, "need_use_acc_helper", need_use_acc_helper)


_FEW = 4096


class _Large:
    """A kernel that sums up many numbers, as far as `need_use_acc_helper` reads it."""

    reduction_depth = 0
    call_ranges = (_FEW + 1,)
