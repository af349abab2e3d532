"""Guards what traced code asks a tensor for that dynamo's guard of a tensor does not have.

It has the type, the dispatch keys, dtype, device, sizes, strides and whether a gradient is wanted. The rest
dynamo takes for constant, from the tensor that it traces with.

Seen in torch 2.11.0 and 2.13.0, read in 2.14.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType
from typing import Any

import torch

from hatch_precompile.static_lookup import dict_of
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.notes import (
    constants,
    guard_on_attribute,
    has_guards,
    stop,
    value_of,
)

__all__ = ["watch_tensors"]

# What the guard of a tensor has, and what follows from it.
_GUARDED = frozenset(
    {
        *("shape", "ndim", "dtype", "device", "layout", "requires_grad", "itemsize", "nbytes"),
        *(name for name in dir(torch.Tensor) if name.startswith("is_") and name != "is_leaf"),
        *("data", "grad", "real", "imag", "T", "mT", "H", "mH"),
    }
)
_MARKS = {torch.nn.Buffer: "_is_buffer", torch.nn.Parameter: "_is_param"}


def watch_tensors(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import builtin, tensor

    watch(tensor.TensorVariable, way("an attribute of most things"), _attribute)
    watch(tensor.UntypedStorageVariable, "call_method", _storage)
    watch(builtin.BuiltinVariable, "call_isinstance", _isinstance)


def _attribute(self: Any, tx: Any, name: str, *, own: Any) -> Any:
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource

    result = own(self, tx, name)
    of_c = isinstance(vars(torch._C.TensorBase).get(name), GetSetDescriptorType)
    if name == "_base" and self.source is None:  # a view made in the trace has that of its tensor
        stop("the base of a view", "Ask the tensor itself.")
    if has_guards(self.source) and of_c and name not in _GUARDED:
        asked = GuardBuilder.CONSTANT_MATCH if result.is_python_constant() else GuardBuilder.TYPE_MATCH
        install_guard(AttrSource(self.source, name).make_guard(asked))
    return result


def _storage(self: Any, tx: Any, name: str, args: Any, kwargs: Any, *, own: Any) -> Any:
    if name == "size":
        stop("the size of a tensor's storage", "Ask for the tensor's own size.")
    return own(self, tx, name, args, kwargs)


def _isinstance(self: Any, tx: Any, arg: Any, isinstance_type_var: Any, *, own: Any) -> Any:
    """Whether a tensor is a parameter or a buffer may be a mark that it has."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.tensor import TensorVariable

    if isinstance(arg, TensorVariable) and has_guards(arg.source):
        ((asked,), _) = constants([isinstance_type_var], {}) or (((),), {})
        for kind in asked if type(asked) is tuple else (asked,):
            if mark := _MARKS.get(kind):
                guard_on_attribute(arg.source, mark)
                if mark in dict_of(value_of(arg.source, tx.output.root_tx)):
                    install_guard(AttrSource(arg.source, mark).make_guard(GuardBuilder.CONSTANT_MATCH))
    return own(self, tx, arg, isinstance_type_var)
