"""Names of the arrays of sizes in a library's source, the same in each build.

Seen in torch 2.11.0 (torch/_inductor/codegen/cpp_wrapper_cpu.py), which knows an array again by the address
of the method that wrote it. That may be another method's later. 2.13.0 goes by the object of the method.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

__all__ = ["arrays_known_again"]

_KEPT = "_precompile_writers"


def arrays_known_again() -> AbstractContextManager[Any]:
    """Have calling code that is written while the block runs use an array again wherever it can."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    own = CppWrapperCpu.codegen_int_array_var

    def with_one_method(
        wrapper: Any, array: str, writeline: Callable[..., None], *args: Any, **kwargs: Any
    ) -> str:
        kept = vars(wrapper).setdefault(_KEPT, {})  # kept alive, so that no other method gets its address
        writes = (id(getattr(writeline, "__self__", writeline)), getattr(writeline, "__name__", ""))
        name: str = own(wrapper, array, kept.setdefault(writes, writeline), *args, **kwargs)
        return name

    return patch.object(CppWrapperCpu, "codegen_int_array_var", with_one_method)
