"""Weights that do not change: what a graph takes of them, computed once for each instance.

Nothing is put into the instance. What was computed is kept while the storages of its weights live, and is
valid for these very tensors: another parameter, another version of one, or other memory is noticed at the
next call. A write that does not count up the version is noticed only if it changes the numbers that are
compared (_looked_at). The prepack graph is made by hatch_precompile/inductor/prepacking/weights.py.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ..errors import raised_by_signal
from ..torch_internals.torch_private import (
    after_optimizer_steps,
    at_work,
    leave_untraced,
    without_subclass_functions,
)
from .callers import GraphFailed, taking_apart, undisturbed

__all__ = ["FixedWeights", "NotFinite", "computed", "load_steps"]


def computed(steps: Sequence[Any], outputs: Sequence[int], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Run the steps of a prepack graph on inputs, and return the tensors of `outputs`. Raises NotFinite."""
    results: list[torch.Tensor] = []
    with undisturbed():
        for name, args, kwargs in steps:
            given = {key: _decoded(each, inputs, results) for key, each in kwargs.items()}
            results.append(_operator(name)(*_decoded(args, inputs, results), **given))
    return [results[number] for number in outputs]


def _decoded(encoded: Any, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    """An argument of a step. Not a function inside `computed`: one that calls itself is a cycle, which would
    keep the weights until the collector runs."""
    if type(encoded) is tuple:
        kind, what = encoded
        if kind in ("input", "step"):
            return (inputs if kind == "input" else results)[what]
        return torch.device(what) if kind == "device" else getattr(torch, what)
    if type(encoded) is list:
        return [_decoded(each, inputs, results) for each in encoded]
    return encoded


class NotFinite(ArithmeticError):
    """A weight has numbers for which another order of the same arithmetic gives something else."""


def _finite(weight: torch.Tensor) -> torch.Tensor:
    """A convolution's weight, unchanged. Raises NotFinite: with infinity or NaN, packed code differs from
    eager code, as it leaves out the zeros around a picture, and may have a norm folded into the weight."""
    if not weight.sum().isfinite():
        raise NotFinite("a convolution has weights that are not finite")
    return weight


def load_steps(steps: Sequence[Any]) -> None:
    """Import what has the steps of a prepack graph that are backends' own, as `x86_64:in_panels`."""
    for backend in {name.partition(":")[0] for name, *_ in steps if ":" in name}:
        _steps_of(backend)


def _steps_of(backend: str) -> dict[str, Callable[..., torch.Tensor]]:
    found: Any = importlib.import_module(f"..backends.{backend}.steps", __package__)
    steps: dict[str, Callable[..., torch.Tensor]] = found.STEPS
    return steps


def _operator(name: str) -> Any:
    """What a step calls: an operator of torch's, or a function of ours, of a backend or of any."""
    backend, of_a_backend, step = name.partition(":")
    if of_a_backend:
        return _steps_of(backend)[step]
    operator: Any = _OWN.get(name, torch.ops)
    for part in name.split(".") if operator is torch.ops else ():
        operator = getattr(operator, part)
    return operator


_OWN = {"finite": _finite}
"""Steps of any backend that are no operators of torch's."""


# For changes that do not count up the version. Up to so many bytes a tensor is compared as a whole: buffers
# of one dimension, such as the statistics that batch norms write so, other buffers, and parameters, which
# only change so where something writes past torch.
_FLAT, _SMALL, _PARAMETER = 1 << 20, 1 << 15, 1 << 9
# As many numbers are compared of all others.
_SAMPLES = 4
_GOLDEN = 0.6180339887498949


def _looked_at(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """What of a tensor's memory is compared at each call: addresses and bytes."""
    shape, strides, address = tensor.shape, tensor.stride(), tensor.data_ptr()
    if not tensor.numel() or not address:
        return []
    size = (sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1) * tensor.element_size()
    if isinstance(tensor, torch.nn.Parameter):
        whole = size <= _PARAMETER
    else:
        whole = size <= (_FLAT if len(shape) == 1 else _SMALL)
    if whole:
        return [(address, size)]
    last = tensor.numel() - 1
    found = []
    for number in (0, last, *(int(last * (each * _GOLDEN % 1)) for each in range(1, _SAMPLES - 1))):
        found.append(
            (address + _place(number, shape, strides) * tensor.element_size(), tensor.element_size())
        )
    return found


def _place(number: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """The offset, in elements, of a tensor's element with this number, counted in row-major order."""
    place = 0
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        number, along = divmod(number, size)
        place += along * step
    return place


_Pieces = Sequence[tuple[int, int]]
_Watch = Callable[[_Pieces], Callable[[], bool]]


def _watch_by(library: str) -> _Watch:
    """A function of pieces (address, bytes) that returns a check of whether this memory holds what it holds
    now. library: a graph's, which has it in C (hatch_precompile/inductor/prepacking/watched.h)."""
    function = ctypes.PyDLL(library).precompiled_watch
    function.argtypes, function.restype = [ctypes.py_object], ctypes.py_object

    def watch(pieces: _Pieces) -> Callable[[], bool]:
        table = [number for piece in pieces for number in piece]
        contents = b"".join(ctypes.string_at(*piece) for piece in pieces)
        made: Callable[[], bool] = function(
            struct.pack(f"={1 + len(table)}q", len(pieces), *table) + contents
        )
        return made

    return watch


def _watch(pieces: _Pieces) -> Callable[[], bool]:
    """The same for a graph that has no library of its own."""
    known = [(*piece, ctypes.string_at(*piece)) for piece in pieces]
    return lambda: all(ctypes.string_at(address, size) == held for address, size, held in known)


class _Prepared:
    """What was computed of one instance's weights.

    It is dropped when a storage of theirs is freed, before another tensor can lie at that address. There are
    no weak references to the weights themselves: torch does not swap tensors that have any. A weight is known
    from a later one with the same id by its `__dict__`, which is kept (_mark). When a tensor subclass is
    changed in place, as by load_state_dict, torch counts up its version and not those of the tensors that it
    wraps: so the versions of the subclasses, `wrapping`, count, too. They live as long as what they wrap.
    """

    def __init__(
        self,
        prepack_graph: Any,
        inputs: Sequence[Any],
        wrapping: Sequence[Any],
        forget: Callable[[weakref.ref[Any]], None] | None,
        watch: _Watch,
    ) -> None:
        _, steps, outputs, watched = prepack_graph
        weights = [(number, inputs[number]) for number in (watched if forget is not None else ())]
        self.weights = [(number, _mark(each), each._version, each.data_ptr()) for number, each in weights]
        memory = {id(storage): storage for storage in (each.untyped_storage() for _, each in weights)}
        self._memory = [weakref.ref(storage, forget) for storage in memory.values()]
        self._unchanged = watch([piece for _, each in weights for piece in _looked_at(each)])
        # A subclass would be asked for its version with a call of Python, at each call.
        with without_subclass_functions():
            self.wrapping = [(id(each), each._version) for each in (wrapping if forget is not None else ())]
        self.failure: NotFinite | None = None
        self.tensors: list[torch.Tensor] = []
        try:
            self.tensors = [_apart(each, memory) for each in computed(steps, outputs, inputs)]
        except NotFinite as error:
            self.failure = error.with_traceback(None)  # that has the weights

    def holds(self, inputs: Sequence[Any], wrapping: Sequence[Any]) -> bool:
        if self.wrapping and not self._are_as_they_were(wrapping):
            return False
        for number, mark, version, address in self.weights:
            tensor = inputs[number]
            if tensor.__dict__ is not mark and id(tensor) != mark:
                return False
            if tensor._version != version or tensor.data_ptr() != address:
                return False
        return self._unchanged()

    def _are_as_they_were(self, wrapping: Sequence[Any]) -> bool:
        with without_subclass_functions():
            for (known, version), each in zip(self.wrapping, wrapping, strict=True):
                if known != id(each) or each._version != version:
                    return False
        return True

    def has_memory(self) -> bool:
        """Whether that of all its weights is there."""
        return all(storage() is not None for storage in self._memory)

    def has_weights(self, kept: Counter[int]) -> bool:
        """Whether the weights may be alive, and not only their storages: their marks have references beside
        those that are kept here. kept: the number of these, by the mark's id."""
        return all(
            type(mark) is int or (not mark and sys.getrefcount(mark) > kept[id(mark)] + _HERE)
            for _, mark, *_ in self.weights
        )

    def is_of(self, inputs: Sequence[Any]) -> bool:
        """Whether it was computed of the same parameters, whatever became of them."""
        return all(
            inputs[number].__dict__ is mark or id(inputs[number]) == mark for number, mark, *_ in self.weights
        )


def _apart(made: torch.Tensor, memory: dict[int, Any]) -> torch.Tensor:
    """What was made of weights, in other memory than theirs: with that it would never go."""
    if made.layout is torch.strided and id(made.untyped_storage()) in memory:
        return made.clone()
    return made


def _mark(weight: torch.Tensor) -> dict[str, Any] | int:
    """What identifies a weight: its `__dict__` if that is empty, else its id. What is in a `__dict__` may
    refer to the weight, which would then never be freed."""
    attributes = weight.__dict__
    return id(weight) if attributes else attributes


# References to a mark that `has_weights` itself has: its loop's, and sys.getrefcount's argument, which
# CPython 3.14 only borrows.
_HERE = 1 if sys.version_info >= (3, 14) else 2
# So many of the latest keys are looked through for weights that are gone.
_LATEST = 4


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
    """A graph's library with a prepack graph."""

    def __init__(
        self,
        library: Callable[..., Any],
        prepack_graph: Any,
        *,
        ways: dict[str, Any] | None = None,
        noticed: bool = True,
        path: str = "",
        lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """ways: of inputs that are tensor subclasses, to the tensors that the library takes in their place;
        noticed: whether a change of the weights is; path: of the library, if it has a function that looks
        for changes; lock: gives the one that a fork waits for, held while weights are computed."""
        self._library = library
        self._graph = prepack_graph
        self._ways = ways
        self._noticed = noticed
        self._watch = _watch_by(path) if path else _watch
        self._lock = lock
        # By the first weight: most often there is one.
        self._prepared: dict[int, list[_Prepared]] = {}
        _every.append(weakref.ref(self, _every.remove))

    def caller(self) -> Callable[..., Any]:
        """The callable: positional inputs, a list of outputs. Raises GraphFailed."""
        kept, _, _, watched = self._graph
        first, get, library, prepare = watched[0], self._prepared.get, self._library, self._prepare

        def run(inputs: Sequence[Any], wrapping: Sequence[Any] = ()) -> Any:
            for found in get(id(inputs[first]), ()):
                if found.holds(inputs, wrapping):
                    break
            else:
                found = prepare(inputs, wrapping)
            if found.failure is not None:
                raise GraphFailed(found.failure, rerun=True)
            return library(*[inputs[number] for number in kept], *found.tensors)

        apart = taking_apart(self._ways) if self._ways else None

        def call(*inputs: Any) -> Any:
            return run(inputs) if apart is None else run(*apart(inputs))

        def boxed(inputs: list[Any]) -> Any:
            given = list(inputs)
            inputs.clear()
            return run(given) if apart is None else run(*apart(given))

        for function in (run, call, boxed):
            leave_untraced(function, below=True)
        call.boxed = boxed  # type: ignore[attr-defined]
        return call

    def _prepare(self, inputs: Sequence[Any], wrapping: Sequence[Any]) -> _Prepared:
        watched = self._graph[3]
        # What is made under inference_mode has no version, so that nobody could see it change.
        weights = [*(inputs[number] for number in watched), *wrapping]
        if not self._noticed or any(weight.is_inference() for weight in weights):
            return self._made(inputs, wrapping, None)
        key = id(inputs[watched[0]])
        # Other threads may make their first calls at the same time, and copies are large.
        with self._lock():
            for known in self._prepared.get(key, ()):
                if known.holds(inputs, wrapping):
                    return known
            made = self._made(inputs, wrapping, _forgetting(weakref.ref(self), key))
            after_optimizer_steps(__name__, _stepped)
            others = [each for each in self._prepared.get(key, ()) if not each.is_of(inputs)]
            self._prepared[key] = [made, *others]
            self._forget_abandoned(key)
        return made

    def _made(
        self, inputs: Sequence[Any], wrapping: Sequence[Any], forget: Callable[[Any], None] | None
    ) -> _Prepared:
        """Raises GraphFailed. The library has not run yet, so that the call can be made again."""
        try:
            with at_work():
                return _Prepared(self._graph, inputs, wrapping, forget, self._watch)
        except Exception as error:
            if raised_by_signal(error):
                raise
            raise GraphFailed(error, rerun=True) from error

    def _forget_abandoned(self, key: int) -> None:
        """Of those with this key, and the latest: a weight may have been replaced whose memory is there."""
        every = [fixed for reference in tuple(_every) if (fixed := reference()) is not None]
        kept = Counter(mark for fixed in every for mark in fixed.marks(key))
        for each in self._near(key):
            self.forget(each, lambda made: made.has_memory() and made.has_weights(kept))

    def _near(self, key: int) -> set[int]:
        return {key, *list(self._prepared)[-_LATEST:]}

    def marks(self, key: int) -> list[int]:
        """The ids of those that are kept with this key, and the latest."""
        made = [each for near in self._near(key) for each in self._prepared.get(near, ())]
        return [id(mark) for each in made for _, mark, *_ in each.weights]

    def forget(self, key: int, stays: Callable[[_Prepared], bool]) -> None:
        every = self._prepared.get(key, [])
        kept = [each for each in every if stays(each)]
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


def _forgetting(fixed: weakref.ref[FixedWeights], key: int) -> Callable[[Any], None]:
    """What is called when memory of weights goes. It does not keep the graph."""

    def forget(_: Any) -> None:
        if (found := fixed()) is not None:
            found.forget(key, _Prepared.has_memory)

    return forget


WHOLE = True
