"""One set of inputs of a target, copies of it, and the mode that it is called in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hatch_precompile.tracing.pytrees import children
from hatch_precompile.tracing.tensors import without_subclass

__all__ = ["Copying", "Sample", "copied", "copy_of", "gives_no_gradient", "mode_context", "raised_eagerly"]


@dataclass(frozen=True)
class Sample:
    """One set of inputs. `owner`: the object a workload called, None where the build makes one; `mode`: the
    one it is called in; `resized`: the sizes in which it is called instead of its own (resized.py)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    owner: Any = None
    mode: str = "no_grad"
    resized: tuple[tuple[str, int, int], ...] = ()


class Copying(TorchFunctionMode):
    """Copies tensors so that a copy is of the same kind: an inference tensor, or of the same subclass.

    Copied in another mode than they were made in, tensors would gain or lose what inference mode leaves
    out of them, and guards look at that. Torch's own copy of a subclass asks for methods that one need not
    have unless it wraps other tensors.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is not torch.Tensor.__deepcopy__:
            return function(*args, **kwargs or {})
        value, memo = args
        with torch.inference_mode(value.is_inference()):
            if type(value) in (torch.Tensor, torch.nn.Parameter) or (
                type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
                or type(value).__deepcopy__ is not torch.Tensor.__deepcopy__
            ):
                return function(*args, **kwargs or {})
            with without_subclass(), torch.no_grad():
                result = copy.deepcopy(value.as_subclass(torch.Tensor), memo).as_subclass(type(value))
                result.__dict__.update(copy.deepcopy(value.__dict__, memo))
                return result.requires_grad_(value.requires_grad)


def copied(sample: Sample) -> Sample:
    """The sample with a deep copy of its arguments."""
    args, kwargs = copy_of((sample.args, sample.kwargs))
    return replace(sample, args=args, kwargs=kwargs)


def copy_of(value: Any) -> Any:
    """A deep copy in which tensors keep their kind (see Copying)."""
    with Copying():
        return copy.deepcopy(value)


def mode_context(mode: str) -> AbstractContextManager[Any]:
    """The grad mode that calls are made in; "grad": with gradients on, which nobody asks for."""
    if mode == "inference":
        return torch.inference_mode()
    return torch.no_grad() if mode == "no_grad" else torch.enable_grad()


def raised_eagerly(call: Callable[..., Any], sample: Sample) -> Exception | None:
    """What a call raises where nothing is compiled: then torch.compile is not what has failed."""
    try:
        with mode_context(sample.mode), torch.compiler.set_stance("force_eager"):
            call(*sample.args, **sample.kwargs)
    except Exception as error:
        return error
    return None


def gives_no_gradient(call: Callable[..., Any], sample: Sample) -> bool:
    """Whether a call that is made with gradients on gives tensors, and none of them needs one."""
    try:
        with mode_context(sample.mode), torch.compiler.set_stance("force_eager"):
            answer = call(*sample.args, **sample.kwargs)
    except Exception:  # then nobody calls it so
        return False
    tensors = list(_tensors(answer, 0))
    return bool(tensors) and not any(tensor.requires_grad for tensor in tensors)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _DEEPEST:
        for _, part in children(value) or ():
            yield from _tensors(part, depth + 1)


_DEEPEST = 12
