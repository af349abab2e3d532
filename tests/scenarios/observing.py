"""What there is to see of calls of small programs (tests/language/programs), as data that can be compared."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

import probe
import programs  # noqa: F401  # it installs the compiled code
import torch
from programs import calls, modules, shapes  # noqa: F401

# torch.compiler.disable, in one of the modules, imports dynamo; compiling would import AOTAutograd too.
_ALREADY = probe.compilers()


def imported() -> list[str]:
    """The compilers that were imported by calls."""
    return [name for name in probe.compilers() if name not in _ALREADY]


def inductor_is_imported() -> bool:
    """The part of it that compiles."""
    return "torch._inductor.compile_fx" in sys.modules


def status(name: str) -> Any:
    return probe.status(name, "programs")


def hits(name: str) -> int:
    return probe.hits(name, "programs")


def misses(name: str) -> int:
    return probe.misses(name, "programs")


def plain(value: Any) -> Any:
    """Tensors, objects and what holds them, as data."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), list(value.stride()), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "__dict__"):
        return [type(value).__name__, {key: plain(item) for key, item in vars(value).items()}]
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        value = list(vars(value).values()) if hasattr(value, "__dict__") else []
    return [tensor for item in value for tensor in _tensors(item)]


def _shared(found: list[torch.Tensor]) -> list[list[int]]:
    """For each tensor, the first that is the same object, and the first in the same memory."""
    memory = [tensor.untyped_storage().data_ptr() for tensor in found]
    return [
        [next(i for i, other in enumerate(found) if other is tensor), memory.index(place)]
        for tensor, place in zip(found, memory, strict=True)
    ]


def observed(call: Callable[..., Any], *arguments: Any) -> list[Any]:
    """All that there is to see of a call: result, arguments, which of them share memory, output, effects."""
    torch.manual_seed(7)
    calls.reset()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), torch.no_grad():
        result = call(*arguments)
    kept = [tensor for tensor in [*_tensors(result), *_tensors(list(arguments))] if tensor.numel()]
    return [plain(result), plain(list(arguments)), _shared(kept), said.getvalue(), plain(calls.left_behind())]


def close(a: Any, b: Any) -> bool:
    """Whether two of these data are the same, up to the last digits of numbers."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 + 1e-4 * abs(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    return bool(a == b)
