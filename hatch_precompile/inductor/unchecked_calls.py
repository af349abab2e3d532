"""Calls in a library whose failure inductor's own code does not look at: those that scatter, put by index, or
draw in place.

Seen in torch 2.11.0, 2.13.0 and 2.14.1 (torch/_inductor/codegen/cpp_wrapper_cpu.py). The last looks at those
that scatter or put.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

__all__ = ["calls_checked"]

_WRITING = ("_generate_scatter_fallback", "_generate_index_put_fallback")


@contextlib.contextmanager
def calls_checked() -> Iterator[None]:
    """Have the calling code that is written while the block runs raise where such a call fails."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.ir import InplaceBernoulliFallback

    draw = InplaceBernoulliFallback.codegen

    def draw_checked(node: Any, wrapper: Any) -> None:
        if isinstance(wrapper, CppWrapperCpu):
            _with_a_check(lambda _: draw(node, wrapper))(wrapper)
        else:
            draw(node, wrapper)

    checked: dict[str, Any] = {name: _with_a_check(getattr(CppWrapperCpu, name)) for name in _WRITING}
    with (
        patch.multiple(CppWrapperCpu, **checked),
        patch.object(InplaceBernoulliFallback, "codegen", draw_checked),
    ):
        yield


def _with_a_check(write: Callable[..., None]) -> Callable[..., None]:
    """The last of the lines that it writes is the call."""

    def write_checked(wrapper: Any, *args: Any, **kwargs: Any) -> None:
        writeline, lines = wrapper.writeline, list[str]()
        wrapper.writeline = lines.append
        try:
            write(wrapper, *args, **kwargs)
        finally:
            wrapper.writeline = writeline
        *before, call = lines
        for line in before:
            writeline(line)
        checked = call.startswith("AOTI_TORCH_ERROR_CODE_CHECK(")
        writeline(call if checked else f"AOTI_TORCH_ERROR_CODE_CHECK({call.removesuffix(';')});")

    return write_checked
