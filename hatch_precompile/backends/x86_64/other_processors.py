"""What the processor decides where a wheel runs, decided as on another one.

Which library multiplies matrices, and the order in which weights are packed for it, is chosen where code runs
(layers/). What is not chosen on the build machine would be verified nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["OtherProcessors"]


class OtherProcessors:
    """A policy for one runtime, which has loaded nothing yet."""

    words = " (as other processors would run it)"

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._directory = f"{Path(runtime.__file__).parent.absolute()}{os.sep}"
        self._loaded: list[str] = []
        sys.addaudithook(self._note_library)

    def _note_library(self, event: str, args: tuple[Any, ...]) -> None:
        """Of imports only those of libraries come with a file."""
        if event == "import" and isinstance(args[1], str) and args[1].startswith(self._directory):
            self._loaded.append(args[1])

    def would_decide(self) -> bool:
        """Whether anything that has run would run in another way there."""
        return bool(self._switches()) or self._weights() is not None

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Everything is decided the other way while the block runs."""
        with contextlib.ExitStack() as back:
            for switch in self._switches():
                switch.value = True
                back.callback(setattr, switch, "value", False)
            weights = self._weights()
            if weights is not None:
                is_fast = weights.onednn_is_fast
                weights.onednn_is_fast = lambda: not is_fast()
                back.callback(self._runtime.refresh)
                back.callback(setattr, weights, "onednn_is_fast", is_fast)
                self._runtime.refresh()
            yield

    def _switches(self) -> list[ctypes.c_bool]:
        """Of the libraries that ask the processor (inductor/layers/own_functions.py)."""
        found = []
        for path in self._loaded:
            with contextlib.suppress(ValueError):  # the others have none
                found.append(ctypes.c_bool.in_dll(ctypes.CDLL(path), "precompiled_otherwise"))
        return found

    def _weights(self) -> Any:
        """The module that packs weights, if there are any to pack."""
        return sys.modules.get(f"{self._runtime.__name__}.backends.x86_64.steps")
