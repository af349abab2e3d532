"""Resume functions: what dynamo calls to go on behind a graph break, as it binds them in a frame's globals.

Seen in torch 2.11.0 and 2.13.0 to 2.15.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, NoneType
from typing import Any
from unittest.mock import patch

from hatch_precompile.torch_versions import torch_name, way

__all__ = ["RESUME_FUNCTIONS", "portable_breaks", "resume_function"]

RESUME_FUNCTIONS = ("__resume_at", "__comprehension_")
"""What their names begin with. Since Python 3.12 a comprehension is in the code of its function: where the
graph breaks in it, it is a function of its own, which dynamo does not compile."""


def resume_function(value: Any) -> tuple[CodeType, str]:
    """The code and the module of a resume function, as dynamo bound it in a frame's globals.

    One with free variables is bound as a factory that takes the closure.
    """
    if value.__code__.co_name == "_make_fn":
        cells = dict(zip(value.__code__.co_freevars, value.__closure__, strict=True))
        return cells["code"].cell_contents, cells["f_globals"].cell_contents["__name__"]
    return value.__code__, value.__globals__["__name__"]


@contextlib.contextmanager
def portable_breaks() -> Iterator[None]:
    """Have dynamo write, where a graph breaks, what another process can run."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(_nulls_popped_by_a_type())
        if way("a resume function with free variables") != "a factory":
            patches.enter_context(_bound_as_factories())
        yield


@contextlib.contextmanager
def _nulls_popped_by_a_type() -> Iterator[None]:
    """A NULL leaves the stack with a call of what gives None: NoneType, in place of a function of dynamo's
    that has no name."""
    of_dynamo = torch_name("what takes a NULL off the stack")

    def pop_null(self: Any) -> Any:
        _, *call = of_dynamo(self)
        return [self.create_load_const_unchecked(NoneType), *call]

    from torch._dynamo.codegen import PyCodegen

    with patch.object(PyCodegen, "pop_null", pop_null):
        yield


@contextlib.contextmanager
def _bound_as_factories() -> Iterator[None]:
    """Have torch 2.11, too, call a factory for a resume function with free variables. By itself it binds the
    code, which nothing reads, and has it once more among the constants of what calls it."""
    from torch._dynamo.bytecode_transformation import create_call_function
    from torch._dynamo.codegen import PyCodegen
    from torch._dynamo.output_graph import OutputGraph

    bind = OutputGraph.install_global_unsafe

    def install_global_unsafe(self: Any, name: str, value: Any) -> None:
        if type(value) is CodeType and value.co_freevars:
            value = _factory(name, value, self.global_scope)
        bind(self, name, value)

    def make_function_with_closure(self: Any, fn_name: str, code: CodeType) -> None:
        self.extend_output(self.load_function_name(fn_name, True, 1))
        self.extend_output(create_call_function(1, False))
        self.clear_tos()

    with (
        patch.object(OutputGraph, "install_global_unsafe", install_global_unsafe),
        patch.object(PyCodegen, "make_function_with_closure", make_function_with_closure),
    ):
        yield


def _factory(name: str, code: CodeType, f_globals: dict[str, Any]) -> Any:
    from torch._dynamo.eval_frame import skip_code

    def _make_fn(closure: tuple[CellType, ...]) -> FunctionType:
        return FunctionType(code, f_globals, name, None, closure)

    skip_code(_make_fn.__code__)  # as dynamo does not trace into its own
    return _make_fn
