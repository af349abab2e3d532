"""Guard functions from the data of an entry: what they may call and compare with, their native form."""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from ..dependencies.call_checks import CALL_CHECKS
from ..torch_internals import torch_private
from ..values.constants import alike, decode
from ..values.references import original, unwrap

if TYPE_CHECKING:
    from .entries import Entry

__all__ = ["Announced", "Beside", "guard_namespace", "native_guard", "prepare_guard"]


def guard_namespace() -> dict[str, Any]:
    """What generated guard functions may call."""
    return {
        # What looks at the frames of a stack, as torch.jit.trace does, expects every one to have them.
        "__builtins__": builtins,
        "torch": torch,
        "may_serve": torch_private.may_serve,
        "in_checkpoint": torch_private.in_checkpoint,
        "marks_agree": torch_private.marks_agree,
        "from_numpy": torch_private.from_numpy,
        "apart_in_memory": torch_private.apart_in_memory,
        "alike": alike,
        "plain_function": unwrap,
        "plain_code": original,
        "load": _passed,
        "function_mode_depth": torch_private.function_modes,
        "saved_tensors_hooks": torch_private.saved_tensors_hooks,
        "inference_mode": torch.is_inference_mode_enabled,
        "default_device": torch_private.default_device,
        "gpu_settings": torch_private.gpu_settings,
        "forward_ad": forward_ad,
        "math": math,
        **CALL_CHECKS,
    }


def _passed(_locals: dict[str, Any]) -> bool:
    """What the stub of an entry ends with: the rest has to be loaded."""
    return True


def prepare_guard(
    namespace: dict[str, Any],
    data: dict[str, Any],
    frame_globals: dict[str, Any],
    entry: Any,
    gpu: Any = None,
) -> CodeType:
    """Fill a guard function's globals from an entry's data, and return its code; `entry` gets its `state`.
    gpu: of one for GPUs, what says for which.

    Raises Stale where something it compares with cannot be found, Refused where it cannot be made.
    """
    entry.state = torch_private.StateGuard(data["state"])
    namespace.update(entry=entry, state=entry.state, G=frame_globals)
    namespace.update({f"c{i}": decode(constant) for i, constant in enumerate(data["constants"])})
    with torch_private.dispatching_as(*data["dispatch"]):
        for index, group in enumerate(data["tensors"]):
            namespace[f"T{index}"] = _tensor_check(group, data["dispatch"], on_gpu=gpu is not None)
    if gpu is not None:
        torch_private.settle_gpu_settings()
        namespace["gpu"] = gpu
    *parts, code = data["guard"]
    if parts:
        _add_parts(namespace, parts)
    whole: CodeType = code
    return whole


def _tensor_check(group: tuple[Any, Any], dispatch: tuple[int, int], *, on_gpu: bool) -> Any:
    if not on_gpu:
        return torch_private.tensor_guards(group)
    from ..backends.cuda import TensorsOnOneGpu

    return TensorsOnOneGpu(group, dispatch)


def _add_parts(namespace: dict[str, Any], parts: list[CodeType]) -> None:
    """Put the functions that have a guard's repeated checks into its namespace; each may call later ones.

    No function is among its own globals: such a cycle would wait for the garbage collector.
    """
    found = {**namespace}
    made: dict[str, FunctionType] = {}
    for part in reversed(parts):
        called = {name: made[name] for name in part.co_names if name in made}
        made[part.co_name] = FunctionType(part, {**found, **called} if called else found, part.co_name)
    namespace.update(made)


def native_guard(make: Callable[..., Any], namespace: dict[str, Any], native: Any) -> Callable[..., bool]:
    """The guard that a library makes of what a readable one finds in its namespace."""
    number, names, values = native
    # A dict finds the very string that is its key without comparing text.
    kept = (sys.intern(value) if type(value) is str else value for value in values)
    guard: Callable[..., bool] = make(number, (*(_named(namespace, name) for name in names), *kept))
    return guard


def _named(namespace: dict[str, Any], dotted: str) -> Any:
    name, *attributes = dotted.split(".")
    value = namespace[name] if name in namespace else getattr(builtins, name)
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


class Beside:
    """A guard function that counts no hits of its entry."""

    def __init__(self, code: CodeType, namespace: dict[str, Any], state: torch_private.StateGuard) -> None:
        self.state = state
        self.guard: Callable[[dict[str, Any]], bool] = FunctionType(code, namespace, "guard")
        namespace["entry"] = SimpleNamespace(state=state, hits=0)


class Announced:
    """Stands in for an entry in its guard function: the first hit is logged, each is counted."""

    def __init__(self, entry: Entry, log: Any) -> None:
        self._entry = entry
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    @property
    def hits(self) -> int:
        return self._entry.hits

    @hits.setter
    def hits(self, value: int) -> None:
        if self._entry.hits == 0:
            frame = self._entry.frame
            self._log.hit(frame, frame.entries.index(self._entry))
        self._entry.hits = value

    @property
    def state(self) -> Any:
        return self._entry.state

    @state.setter
    def state(self, value: Any) -> None:
        self._entry.state = value


WHOLE = True
