"""Samples from a workload: a function that uses the target, whose calls of it are recorded.

The idea is PrecompileTools.jl's.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.call import Sample, copied, mode_context
from hatch_precompile.entrypoints.finding import Declared, find_declared
from hatch_precompile.entrypoints.observing import Call, IsOf, calls_observed
from hatch_precompile.entrypoints.references import find_reference
from hatch_precompile.errors import BuildError, CaptureError
from hatch_precompile.static_lookup import is_a

__all__ = ["Through", "recorded_calls"]

_Record = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
Through = Callable[[Sample, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Makes a recorded call: gets the sample of it, a copy, and the call with the arguments themselves."""


def recorded_calls(
    entrypoint: Entrypoint, reference: str, mode: str, through: Through | None = None
) -> list[Sample]:
    """Run the workload in a mode of the entrypoint's; the calls of the target that it makes, in their order.

    A call that the target makes of itself is part of the outer one. Calls in another mode are left out; with
    "inference", a call that the workload makes in no mode of its own is made in inference mode. through:
    makes the calls; meanwhile nothing is recorded, and the target is not watched. Raises CaptureError if no
    call is left, or the workload fails.
    """
    declared = find_declared(entrypoint)
    what = f'workload = "{reference}"'
    workload = find_reference(reference, "workload")
    if not callable(workload):
        raise CaptureError(f"{what} is a {type(workload).__name__}; a workload is a function")
    recorder = _Recorder(mode, what, _watching(declared), through)
    try:
        # What it makes outside of its calls, a model above all, its users make in no inference mode.
        with recorder.watching(), mode_context("no_grad" if mode == "inference" else mode):
            workload()
    except Exception as error:
        if recorder.failure is not None:
            raise recorder.failure from None
        hint = _ABOUT_GRADIENTS if mode != "train" and _NO_GRADIENT in str(error) else ""
        raise CaptureError(f"{what} raised {type(error).__name__}: {error}{hint}") from error
    if recorder.failure is not None:
        raise recorder.failure
    if recorder.samples:
        return recorder.samples
    if recorder.other_modes:
        modes = ", ".join(sorted(f'"{mode}"' for mode in recorder.other_modes))
        raise CaptureError(
            f'{what} calls {entrypoint.target}, but never with mode = "{mode}"; '
            f"the mode of its calls is {modes}"
        )
    raise CaptureError(f"{what} never calls {entrypoint.target}")


_NO_GRADIENT = "does not require grad"  # as torch says when there is nothing to go back through
_ABOUT_GRADIENTS = (
    '. A workload runs under torch.no_grad(), unless mode is "train": put `with torch.enable_grad():` '
    "around what trains in it"
)


class _Recorder:
    def __init__(
        self,
        mode: str,
        what: str,
        watch: Callable[[_Record], AbstractContextManager[Any]],
        through: Through | None,
    ) -> None:
        self.mode = mode
        self.what = what
        self.samples: list[Sample] = []
        self.other_modes: set[str] = set()
        self.failure: BuildError | None = None
        self._now = threading.local()
        self._watch = watch
        self._watched = ExitStack()
        self._through = through
        self._turn = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Have every call of the target go through `call`."""
        try:
            self._watched.enter_context(self._watch(self.call))
            yield
        finally:
            self._watched.close()

    def call(
        self, function: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call of the target, and remember what it was given: the call may change that."""
        if getattr(self._now, "inside", False):
            return function(*args, **kwargs)
        if self.mode == "inference" and _mode() == "no_grad":
            with mode_context("inference"):
                return self.call(function, owner, args, kwargs)
        mode, sample = _mode(), None
        if mode == self.mode:
            sample = self._remember(owner, args, kwargs)
        else:
            self.other_modes.add(mode)
        self._now.inside = True
        try:
            if sample is not None and self._through is not None:
                return self._made(self._through, sample, function, args, kwargs)
            return function(*args, **kwargs)
        finally:
            self._now.inside = False

    def _made(
        self,
        through: Through,
        sample: Sample,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make the call while the target is not watched, as for its users: guards look at its functions."""
        with self._turn:
            self._watched.close()
            try:
                return through(sample, function, args, kwargs)
            except BuildError as error:
                self.failure = self.failure or error  # the workload may catch what is raised in it
                raise
            finally:
                self._watched.enter_context(self._watch(self.call))

    def _remember(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sample | None:
        try:
            sample = copied(Sample(args, kwargs, owner, self.mode))
        except Exception as error:
            number = len(self.samples) + 1
            self.failure = self.failure or CaptureError(
                f"{self.what}: the arguments of call {number} cannot be copied: {error}"
            )
            return None
        self.samples.append(sample)
        return sample


def _mode() -> str:
    if torch.is_inference_mode_enabled():
        return "inference"
    return "train" if torch.is_grad_enabled() else "no_grad"


def _watching(declared: Declared) -> Callable[[_Record], AbstractContextManager[Any]]:
    """What has every call of the target go through a function, while its block runs."""
    if declared.kind == "module class":
        return functools.partial(_watching_class, declared.value)
    if declared.kind == "method":
        return functools.partial(_watching_method, declared.owner, declared.attribute)
    return functools.partial(_watching_function, declared.value)


@contextmanager
def _watching_class(cls: Any, record: _Record) -> Iterator[None]:
    """A call of `forward` counts as well, unless it is part of a call of the module."""

    def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module, *rest = args
        return record(functools.partial(function, module), module, tuple(rest), kwargs)

    def is_of(args: tuple[Any, ...]) -> bool:
        return bool(args) and type(args[0]) is cls  # a subclass has code of its own

    with _watched(cls, "__call__", is_of, call), _watched(cls, "forward", is_of, call):
        yield


def _watching_method(cls: Any, name: str, record: _Record) -> AbstractContextManager[Any]:
    raw = inspect.getattr_static(cls, name)

    def method(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        return record(functools.partial(function, owner), owner, tuple(rest), kwargs)

    def class_method(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        return record(functools.partial(function, owner), None, tuple(rest), kwargs)

    def static_method(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return record(function, None, args, kwargs)

    if isinstance(raw, classmethod):
        return _watched(cls, name, lambda args: bool(args) and args[0] is cls, class_method)
    if isinstance(raw, staticmethod):
        return _watched(cls, name, lambda args: True, static_method)
    return _watched(cls, name, lambda args: bool(args) and is_a(args[0], cls), method)


def _watching_function(function: Any, record: _Record) -> AbstractContextManager[Any]:
    return calls_observed(
        function, lambda args: True, lambda function, args, kwargs: record(function, None, args, kwargs)
    )


def _watched(cls: Any, name: str, is_of: IsOf, call: Call) -> AbstractContextManager[Any]:
    """Have calls of a class's function go through `call`: by its code, for an object may keep its own method,
    in a wrapper of its constructor's, say. What is no Python function is replaced in the class."""
    raw = inspect.getattr_static(cls, name)
    function = getattr(raw, "__func__", raw)
    if type(function) is FunctionType:
        return calls_observed(function, is_of, call)

    def method(*args: Any, **kwargs: Any) -> Any:
        def original(owner: Any, *args: Any, **kwargs: Any) -> Any:
            return raw.__get__(owner, type(owner))(*args, **kwargs)

        return call(original, args, kwargs) if is_of(args) else original(*args, **kwargs)

    return patch.object(cls, name, method)
