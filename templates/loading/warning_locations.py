"""Where a warning of compiled code comes from: the line, file and module that the frames of eager code have.

A call that is served has more frames than the function alone: its own, with the prologue, those of this
runtime, the compiled code's, and one more after each graph break. `warnings.warn` with a `stacklevel` counts
frames.
"""

from __future__ import annotations

import _warnings
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..values.references import COMPILED, original

__all__ = ["Warnings"]


class Warnings:
    """In compiled code in the place of the module `warnings`, or of its function `warn`: what `find` gives,
    which may be another one at each call. What somebody has put in the place of `warn` is called as it is."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._find(), name)
        return _warn if value is _warnings.warn else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = self._find()
        return (_warn if value is _warnings.warn else value)(*args, **kwargs)


def _warn(
    message: Any,
    category: Any = None,
    stacklevel: int = 1,
    source: Any = None,
    *,
    skip_file_prefixes: tuple[str, ...] = (),
) -> None:
    """As `warnings.warn`, which has no `skip_file_prefixes` before Python 3.12."""
    kind = type(message) if isinstance(message, Warning) else UserWarning if category is None else category
    if not (isinstance(kind, type) and issubclass(kind, Warning)):
        _warnings.warn(message, category)  # raises
    frame = _frame(stacklevel, skip_file_prefixes)
    if frame is None:  # beyond the first call: what stands in for its file differs between Pythons
        _warnings.warn(message, kind, sys.maxsize, source)
        return
    named = frame.f_globals
    warnings.warn_explicit(
        message,
        kind,
        frame.f_code.co_filename,
        frame.f_lineno,
        named.get("__name__") or "<string>",
        named.setdefault("__warningregistry__", {}),
        None,
        source,
    )


def _frame(level: int, prefixes: tuple[str, ...]) -> FrameType | None:
    """The frame of the caller's that Python would find, where there is only one for each function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_runtimes(frame):
        frame = frame.f_back
    if prefixes:
        level = max(level, 2)
    if frame is None:
        return None
    within = not prefixes and _is_passed_over(frame, ())
    for _ in range(level - 1):
        frame = _outside(frame)
        while frame is not None and not within and _is_passed_over(frame, prefixes):
            frame = _outside(frame)
        if frame is None:
            break
    return frame


def _is_passed_over(frame: FrameType, prefixes: tuple[str, ...]) -> bool:
    """Python's own rule: the machinery of imports does not count."""
    name = frame.f_code.co_filename
    return ("importlib" in name and "_bootstrap" in name) or name.startswith(prefixes)


def _outside(frame: FrameType) -> FrameType | None:
    """The frame that called the function which this one runs, or runs a part of."""
    while True:
        code, back = frame.f_code, _back(frame)
        if back is None:
            return None
        if _is_compiled(frame) and original(back.f_code) is not back.f_code:
            frame = back  # of the same function: the prologue has called it
        elif code.co_name.startswith("torch_dynamo_resume_in_") and _is_compiled(back):
            frame = back  # what ran before a graph break
        else:
            return back


def _back(frame: FrameType) -> FrameType | None:
    back = frame.f_back
    while back is not None and _is_runtimes(back):
        back = back.f_back
    return back


def _is_compiled(frame: FrameType) -> bool:
    return frame.f_code.co_consts[-1:] == (COMPILED,)


def _is_runtimes(frame: FrameType) -> bool:
    """Whether it is code of such a runtime, of any wheel. By the module: where that lies says nothing."""
    name = frame.f_globals.get("__name__")
    return type(name) is str and "._precompiled." in name


WHOLE = True
