"""Graphs that need AOTAutograd around them: training, tensor subclasses, inputs that share memory.

The wrappers are torch's own, carried as data. Putting them on imports torch._dynamo, so it happens at
the first call of such a graph and never before. The kernels are the bundle's: nothing is compiled.
Seen in torch 2.13.0.
"""

from __future__ import annotations

import importlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

from . import torch_private

__all__ = ["WrappedGraph"]


class WrappedGraph:
    """A graph whose wrappers go on when it is first called."""

    def __init__(
        self, forward: Callable[..., Any], backward: Callable[..., Any] | None, wrapping: bytes
    ) -> None:
        self._forward = forward
        self._backward = backward
        self._wrapping = wrapping
        self._lock = threading.Lock()
        self._function: Callable[[list[Any]], Any] | None = None

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
        with self._lock:
            if self._function is None:
                # First: runtime_wrappers imports torch._dynamo, which imports runtime_wrappers.
                importlib.import_module("torch._dynamo")
                from torch._functorch._aot_autograd import runtime_wrappers, schemas

                settings, steps = pickle.loads(self._wrapping)
                config = schemas.CacheableAOTConfig(**settings)
                function = _boxed(self._forward)
                for name, arguments, metadata in steps:
                    if name == "AOTDispatchAutograd":
                        spec = runtime_wrappers.AOTDispatchAutogradCompileSpec(
                            compiled_fw_func=function,
                            compiled_bw_func=_boxed(self._backward) if self._backward else None,
                            lazy_backward_info=None,
                            bw_compiler=None,
                            aot_config=config,
                            fw_metadata=metadata,
                            try_save_cache_entry=None,
                            **arguments,
                        )
                        function = runtime_wrappers.AOTDispatchAutograd.post_compile(spec)
                        continue
                    unpicklable = {"fw_only": None} if name == "AOTDispatchSubclassWrapper" else {}
                    wrapper = getattr(runtime_wrappers, name)(**arguments, **unpicklable)
                    function = wrapper.post_compile(function, config, runtime_metadata=metadata)
                self._function = function
            return self._function


def _boxed(call: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Torch hands inputs over in a list that the callee empties, so that they can be freed early."""

    def boxed(inputs: list[Any]) -> Any:
        taken = tuple(inputs)
        inputs.clear()
        return call(*taken)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    torch_private.leave_untraced(boxed, below=True)
    return boxed
