"""What the processor decides where a wheel runs, decided as on another one.

Which library multiplies matrices, and the order in which weights are packed for it, is chosen where code runs
(layers/). What is not chosen on the build machine would be verified nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
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
        """Keep the paths of imported libraries: the event of any other import has no file."""
        if event == "import" and isinstance(args[1], str) and args[1].startswith(self._directory):
            self._loaded.append(args[1])

    def would_decide(self) -> bool:
        """Whether anything that has run would run in another way there."""
        return bool(self._switches())

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Everything is decided the other way while the block runs."""
        switches = self._switches()
        for switch in switches:
            switch(True)
        try:
            yield
        finally:
            for switch in switches:
                switch(False)

    def _switches(self) -> list[Callable[[bool], Any]]:
        """The functions that are offered for it: of libraries that ask the processor
        (inductor/extern_kernels.py), and of the module that packs weights, if there are any to pack."""
        found: list[Callable[[bool], Any]] = []
        for path in self._loaded:
            with contextlib.suppress(AttributeError):  # the others have none
                switch = ctypes.CDLL(path).precompiled_decide_otherwise
                switch.argtypes, switch.restype = [ctypes.c_bool], None
                found.append(switch)
        steps = sys.modules.get(f"{self._runtime.__name__}.backends.x86_64.steps")
        if steps is not None:
            found.append(partial(self._pack_otherwise, steps))
        return found

    def _pack_otherwise(self, steps: Any, otherwise: bool) -> None:
        steps.decide_otherwise(otherwise)
        self._runtime.refresh()
