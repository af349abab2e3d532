"""Weights that do not change: what a graph takes of them, computed once for each instance.

The instance does not know of it. What was computed is kept beside its weights for as long as all of them
live, and holds for these very tensors: another parameter, another version of one, or another memory is
noticed at the next call. The plan is made by hatch_precompile/torch_internals/layers/weights.py.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .errors import raised_by_signal
from .graphs import GraphFailed, taking_apart, undisturbed
from .torch_private import (
    after_optimizer_steps,
    leave_untraced,
    packed_for_onednn,
    without_subclass_functions,
)

__all__ = ["FixedWeights", "computed"]


def computed(steps: Sequence[Any], outputs: Sequence[int], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Run the steps of a plan on a graph's inputs, and return the tensors of `outputs`."""
    results: list[torch.Tensor] = []

    def value(encoded: Any) -> Any:
        if type(encoded) is tuple:
            kind, what = encoded
            if kind in ("input", "step"):
                return (inputs if kind == "input" else results)[what]
            return torch.device(what) if kind == "device" else getattr(torch, what)
        if type(encoded) is list:
            return [value(each) for each in encoded]
        return encoded

    with undisturbed():
        for name, args, kwargs in steps:
            operator: Any = _OWN.get(name, torch.ops)
            for part in name.split(".") if operator is torch.ops else ():
                operator = getattr(operator, part)
            results.append(operator(*value(args), **{key: value(each) for key, each in kwargs.items()}))
    return [results[number] for number in outputs]


_COLUMNS = 16


def _in_panels(weight: torch.Tensor) -> torch.Tensor:
    """A layer's weight, (n, k), in the order in which our own function reads it: (panels, k, 16)."""
    n, k = weight.shape
    filled = torch.nn.functional.pad(weight, [0, 0, 0, -n % _COLUMNS]) if n % _COLUMNS else weight
    return filled.view(-1, _COLUMNS, k).permute(0, 2, 1).contiguous()


def _packed_here(weight: torch.Tensor) -> torch.Tensor:
    """The same, or as oneDNN reads it: for a library whose variant is without AVX-512, on a processor that
    may have it. The function knows which it is given by the dimensions."""
    return packed_for_onednn(weight) if onednn_is_fast() else _in_panels(weight)


def onednn_is_fast() -> bool:
    """Whether this processor has what oneDNN is faster with than our own function. Verification changes the
    answer, too."""
    return bool(torch.cpu.get_capabilities().get("avx512_f"))


_OWN = {"in_panels": _in_panels, "packed_here": _packed_here}
"""Steps that are no operators of torch's."""


# Bytes of a buffer up to which its contents are compared at each call.
_SMALL = 1 << 15


def _contents(tensor: torch.Tensor) -> tuple[int, int, bytes] | None:
    """Address, bytes and contents of a small buffer: the batch norms of torch write their statistics without
    a new version."""
    if isinstance(tensor, torch.nn.Parameter) or not tensor.numel():
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (last + 1) * tensor.element_size()
    if size > _SMALL:
        return None
    return tensor.data_ptr(), size, ctypes.string_at(tensor.data_ptr(), size)


class _Prepared:
    """What was computed of one instance's weights.

    It keeps their memory, so that no other tensor can come to lie at the same address meanwhile. Of a tensor
    subclass that is changed in place, as by load_state_dict, torch counts the version and not that of the
    tensors it wraps: so those of the subclasses, `wrapping`, count, too. They live as long as what they wrap,
    and `.to` swaps them, which torch refuses where there are weak references.
    """

    def __init__(
        self,
        plan: Any,
        inputs: Sequence[Any],
        wrapping: Sequence[Any],
        forget: Callable[[weakref.ref[Any]], None] | None,
    ) -> None:
        _, steps, outputs, watched = plan
        self.weights: list[tuple[int, Callable[[], Any], int, int]] = [
            (number, weakref.ref(inputs[number], forget), inputs[number]._version, inputs[number].data_ptr())
            for number in (watched if forget is not None else ())
        ]
        buffers = [_contents(inputs[number]) for number, *_ in self.weights]
        self.contents = [known for known in buffers if known is not None]
        # A subclass would be asked for its version with a call of Python, at each call.
        with without_subclass_functions():
            self.wrapping = [(id(each), each._version) for each in (wrapping if forget is not None else ())]
        self._memory = [inputs[number].untyped_storage() for number in watched]
        self.tensors = computed(steps, outputs, inputs)

    def holds(self, inputs: Sequence[Any], wrapping: Sequence[Any]) -> bool:
        if self.wrapping and not self._are_as_they_were(wrapping):
            return False
        for number, weight, version, address in self.weights:
            tensor = inputs[number]
            if weight() is not tensor or tensor._version != version or tensor.data_ptr() != address:
                return False
        return all(ctypes.string_at(address, size) == known for address, size, known in self.contents)

    def _are_as_they_were(self, wrapping: Sequence[Any]) -> bool:
        with without_subclass_functions():
            for (known, version), each in zip(self.wrapping, wrapping, strict=True):
                if known != id(each) or each._version != version:
                    return False
        return True

    def knows(self, weight: weakref.ref[Any]) -> bool:
        """Whether it was computed of this one."""
        return any(known is weight for _, known, *_ in self.weights)

    def is_of(self, inputs: Sequence[Any]) -> bool:
        """Whether it was computed of the same parameters, whatever became of them."""
        return all(weight() is inputs[number] for number, weight, *_ in self.weights)


_every: list[weakref.ref[FixedWeights]] = []


def _stepped(optimizer: Any) -> None:
    """A fused optimizer changes parameters without a new version."""
    if any(group.get("fused") for group in optimizer.param_groups):
        for reference in tuple(_every):
            if (fixed := reference()) is not None:
                fixed.refresh()


def stop_watching() -> None:
    """Leave torch as it was."""
    after_optimizer_steps(__name__, None)


class FixedWeights:
    """A graph's library with a plan."""

    def __init__(
        self,
        library: Callable[..., Any],
        plan: Any,
        *,
        changes_inputs: bool,
        ways: dict[str, Any] | None = None,
        noticed: bool = True,
    ) -> None:
        """ways: of inputs that are tensor subclasses, to the tensors that the library takes in their place;
        noticed: whether a change of the weights is."""
        self._library = library
        self._plan = plan
        self._rerun = not changes_inputs
        self._ways = ways
        self._noticed = noticed
        # By the first weight: most often there is one.
        self._prepared: dict[int, list[_Prepared]] = {}
        _every.append(weakref.ref(self))

    def caller(self) -> Callable[..., Any]:
        """The callable: positional inputs, a list of outputs. Raises GraphFailed."""
        kept, _, _, watched = self._plan
        first, get, library, prepare = watched[0], self._prepared.get, self._library, self._prepare

        def run(inputs: Sequence[Any], wrapping: Sequence[Any] = ()) -> Any:
            for found in get(id(inputs[first]), ()):
                if found.holds(inputs, wrapping):
                    break
            else:
                found = prepare(inputs, wrapping)
            return library(*[inputs[number] for number in kept], *found.tensors)

        apart = taking_apart(self._ways) if self._ways else None

        def call(*inputs: Any) -> Any:
            return run(inputs) if apart is None else run(*apart(inputs))

        def boxed(inputs: list[Any]) -> Any:
            given = list(inputs)
            inputs.clear()
            return call(*given)

        for function in (run, call, boxed):
            leave_untraced(function, below=True)
        call.boxed = boxed  # type: ignore[attr-defined]
        return call

    def _prepare(self, inputs: Sequence[Any], wrapping: Sequence[Any]) -> _Prepared:
        watched = self._plan[3]
        # What is made under inference_mode has no version, so that nobody could see it change.
        weights = [*(inputs[number] for number in watched), *wrapping]
        noticed = self._noticed and not any(weight.is_inference() for weight in weights)
        try:
            made = _Prepared(self._plan, inputs, wrapping, self._forget if noticed else None)
        except Exception as error:
            if raised_by_signal(error):
                raise
            raise GraphFailed(error, rerun=self._rerun) from error
        if noticed:
            after_optimizer_steps(__name__, _stepped)
            key = id(inputs[watched[0]])
            others = [each for each in self._prepared.get(key, ()) if not each.is_of(inputs)]
            self._prepared[key] = [made, *others]
        return made

    def _forget(self, gone: weakref.ref[Any]) -> None:
        for key, every in list(self._prepared.items()):
            kept = [each for each in every if not each.knows(gone)]
            if len(kept) < len(every):
                if kept:
                    self._prepared[key] = kept
                else:
                    self._prepared.pop(key, None)

    def refresh(self) -> None:
        """Have everything computed anew."""
        self._prepared.clear()

    def tensors(self) -> list[torch.Tensor]:
        """Everything that is kept."""
        return [
            tensor for every in list(self._prepared.values()) for each in every for tensor in each.tensors
        ]
