"""Graphs that need AOTAutograd around them: training, tensor subclasses, inputs that share memory.

The wrappers are torch's own, carried as data. Putting them on imports torch._dynamo, so it happens at
the first call of such a graph and never before. The kernels are the bundle's: nothing is compiled.
Seen in torch 2.11.0 and 2.13.0.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..errors import raised_by_signal, warn
from ..torch_internals import torch_private
from .callers import GraphFailed

__all__ = ["WrappedGraph"]


class WrappedGraph:
    """A graph whose wrappers go on when it is first called."""

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        wrapping: bytes,
        lock: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """lock: gives the lock that a fork waits for; what is imported here takes seconds."""
        self._forward = forward
        self._backward = backward
        self._wrapping = wrapping
        self._lock = lock
        self._function: Callable[[list[Any]], Any] | None = None
        self._failure: Exception | None = None

    def caller(self) -> Callable[..., Any]:
        """The callable for dynamo's bytecode: positional inputs, outputs as AOTAutograd gives them."""

        def call(*inputs: Any) -> Any:
            function = self._function
            if function is None:
                function = self._wrap()
            return function(list(inputs))

        torch_private.leave_untraced(call, below=True)
        return call

    def _wrap(self) -> Callable[[list[Any]], Any]:
        """Raises GraphFailed where it cannot be done, as where an interrupt has left one of the modules that
        torch's compiler imports half imported."""
        with self._lock():
            if self._function is None:
                if self._failure is None:
                    try:
                        with torch_private.at_work():
                            self._function = self._wrapped()
                        return self._function
                    except Exception as error:
                        if raised_by_signal(error):
                            raise
                        self._failure = error
                        package = (__package__ or "").partition("._precompiled")[0]
                        text = f"a graph runs as eager code: {type(error).__name__}: {error}"
                        warn(package, text, os.environ.get("HATCH_PRECOMPILE", ""))
                raise GraphFailed(self._failure, rerun=True) from self._failure
            return self._function

    def _wrapped(self) -> Callable[[list[Any]], Any]:
        # First: runtime_wrappers imports torch._dynamo, which imports runtime_wrappers.
        importlib.import_module("torch._dynamo")
        from torch._functorch._aot_autograd import runtime_wrappers, schemas

        settings, steps = pickle.loads(self._wrapping)
        config = _config(schemas, settings)
        function = _boxed(self._forward)
        backward = _boxed(self._backward, backward=True) if self._backward else None
        for name, arguments, metadata in steps:
            if name == "AOTDispatchAutograd":
                function = _with_gradients(
                    runtime_wrappers,
                    arguments,
                    compiled_fw_func=function,
                    compiled_bw_func=backward,
                    lazy_backward_info=None,
                    aot_config=config,
                    fw_metadata=metadata,
                    try_save_cache_entry=None,
                )
                _explain_second_derivatives(function)
                continue
            unpicklable = {"fw_only": None} if name == "AOTDispatchSubclassWrapper" else {}
            wrapper = getattr(runtime_wrappers, name)(**arguments, **unpicklable)
            function = wrapper.post_compile(function, config, runtime_metadata=metadata)
        return function


def _config(schemas: Any, settings: dict[str, Any]) -> Any:
    """How AOTAutograd was set. Torch 2.11 has no class for what of that matters after the compile."""
    if hasattr(schemas, "CacheableAOTConfig"):
        return schemas.CacheableAOTConfig(**settings)
    compilers = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions")
    return schemas.AOTConfig(**dict.fromkeys(compilers), **settings)


def _with_gradients(runtime_wrappers: Any, arguments: dict[str, Any], **more: Any) -> Any:
    """What AOTAutograd puts around a graph with a backward. Torch 2.11 takes what it needs one by one, 2.12
    no compiler for a backward that is compiled when it is first called."""
    wrapper = runtime_wrappers.AOTDispatchAutograd
    if hasattr(runtime_wrappers, "AOTDispatchAutogradCompileSpec"):
        specification = runtime_wrappers.AOTDispatchAutogradCompileSpec
        later = {"bw_compiler": None} if "bw_compiler" in specification.__dataclass_fields__ else {}
        return wrapper.post_compile(specification(**later, **arguments, **more))
    numbers = {"num_symints_saved_for_bw_": arguments["num_symints_saved_for_bw"]}
    rest = {name: value for name, value in arguments.items() if name != "num_symints_saved_for_bw"}
    return wrapper.post_compile(**rest, **numbers, **more)


def _boxed(call: Any, *, backward: bool = False) -> Callable[[list[Any]], Any]:
    """Torch hands inputs over in a list that the callee empties, so that they can be freed early."""

    def boxed(inputs: list[Any]) -> Any:
        try:
            return call.boxed(inputs)
        except GraphFailed as failed:
            if not backward:
                raise
            # There is no function that could be run again in place of a backward.
            raise failed.instead from failed.__cause__

    boxed._boxed_call = True  # type: ignore[attr-defined]
    torch_private.leave_untraced(boxed, below=True)
    return boxed


_NO_SECOND = (
    "the backward of a precompiled graph ({package}) was differentiated again, which torch.compile does not "
    "support: call the function for which you need second derivatives with `with torch.compiler.set_stance("
    '"force_eager"):` around the call, or set HATCH_PRECOMPILE=off'
)


def _explain_second_derivatives(function: Callable[..., Any]) -> None:
    """Have torch's error for a double backward name the way out: its own says nothing about wheels."""
    compiled = _autograd_function(function)
    double_backward = getattr(compiled, "_double_backward", None)
    if double_backward is None:
        return  # torch's sentence stays

    def explained(*args: Any, **kwargs: Any) -> Any:
        gradients = double_backward(*args, **kwargs)
        for gradient in gradients if isinstance(gradients, tuple) else (gradients,):
            made_by = getattr(getattr(gradient, "grad_fn", None), "_forward_cls", None)
            if made_by is not None:
                made_by.backward = staticmethod(_refuse_second_derivative)
        return gradients

    compiled._double_backward = staticmethod(explained)


def _refuse_second_derivative(*_: Any) -> None:
    raise RuntimeError(_NO_SECOND.format(package=(__package__ or "").partition(".")[0]))


def _autograd_function(function: Any) -> Any:
    """The torch.autograd.Function that is applied somewhere in a wrapper's closures. In torch 2.12 one of
    these has an object that calls it."""
    seen: list[Any] = []
    waiting = [function]
    while waiting:
        value = waiting.pop()
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type) and hasattr(owner, "_double_backward"):
            return owner
        if isinstance(value, type) and hasattr(value, "_double_backward"):
            return value
        if any(value is each for each in seen):
            continue
        seen.append(value)
        waiting.append(getattr(value, "compiled_fn", None))
        for cell in getattr(value, "__closure__", None) or ():
            try:
                waiting.append(cell.cell_contents)
            except ValueError:  # not filled yet
                continue
    return None


WHOLE = True
