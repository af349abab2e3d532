"""How a library calls operators that are implemented in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.static_lookup import is_a
from hatch_precompile.torch_versions import way

__all__ = ["backward_of", "is_python_operator", "operator_name", "python_operators_called_directly"]


def operator_name(value: Any) -> str:
    """The name below torch.ops of an operator or an overload, such as "aten.sin"; "" for anything else."""
    return str(value) if is_a(value, torch._ops.OpOverload, torch._ops.OpOverloadPacket) else ""


def python_operators_called_directly() -> AbstractContextManager[Any]:
    """Have inductor's C++ wrapper call operators that are implemented in Python through the interpreter.

    Through torch's dispatcher, its own choice for most, an exception arrives as a message: an operator's
    ValueError, and a KeyboardInterrupt in it, would both end as a RuntimeError of the library.
    """
    if way("calls of operators that C++ has no function for") == "a method for them":
        return _calls_by_a_method()
    return _calls_by_types()


def _calls_by_a_method() -> AbstractContextManager[Any]:
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    generate = CppWrapperCpu._generate_fallback_kernel_jit

    def generate_call(
        self: Any,
        buf_name: str,
        python_kernel_name: str,
        get_args: Any,
        op_overload: Any,
        raw_args: Any,
        output_args: Any,
        outputs: Any,
    ) -> None:
        if not is_python_operator(op_overload):
            generate(
                self, buf_name, python_kernel_name, get_args, op_overload, raw_args, output_args, outputs
            )
            return
        self.generate_fallback_kernel_with_runtime_lookup_python(
            buf_name, python_kernel_name, op_overload, _quoted(raw_args), output_args, outputs
        )

    return patch.object(CppWrapperCpu, "_generate_fallback_kernel_jit", generate_call)


@contextlib.contextmanager
def _calls_by_types() -> Iterator[None]:
    """Torch 2.11: the dispatcher takes those whose arguments have types that it knows."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    suited = CppWrapperCpu._compatible_with_stableivalue
    call = CppWrapperCpu.generate_fallback_kernel_with_runtime_lookup_python

    def suited_if_not_python(operator: Any) -> bool:
        return not is_python_operator(operator) and bool(suited(operator))

    def call_python(
        self: Any, buf_name: str, kernel: str, operator: Any, raw_args: Any, *outputs: Any
    ) -> None:
        given = _quoted(raw_args) if is_python_operator(operator) else raw_args
        call(self, buf_name, kernel, operator, given, *outputs)

    with patch.multiple(
        CppWrapperCpu,
        _compatible_with_stableivalue=staticmethod(suited_if_not_python),
        generate_fallback_kernel_with_runtime_lookup_python=call_python,
    ):
        yield


def is_python_operator(operator: Any) -> bool:
    """Whether Python code, as torch.library registers it, computes an operator's values."""
    namespace, _, name = operator.name().partition("::")
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    names = {name, operator._schema.name.partition("::")[2]}
    return any(f"{namespace}/{each}/{key}" in torch.library._impls for each in names for key in keys)


def _quoted(argument: Any) -> Any:
    """An argument as inductor writes it into C++ source: it puts strings there as they are."""
    if isinstance(argument, str):
        return "".join(chr(c) if c < 128 and chr(c).isalnum() else f"\\{c:03o}" for c in argument.encode())
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(_quoted, argument))
    return argument


def backward_of(cls: Any) -> tuple[type, str] | None:
    """For the class of `ctx` in a torch.autograd.Function, which no module has: that function's class, and
    the attribute of it that has the one of `ctx`. Else None."""
    function = vars(cls).get("_forward_cls") if isinstance(cls, type) else None
    return (function, "_backward_cls") if isinstance(function, type) else None
