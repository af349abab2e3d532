"""What the runtime says where compiled code is not used. Nothing but the standard library."""

from __future__ import annotations

import sys
import threading
import warnings
from functools import partial
from types import CodeType
from typing import Any

__all__ = ["PrecompileError", "PrecompileWarning", "Unfit", "give_up", "raised_by_signal", "warn"]


class PrecompileWarning(UserWarning):
    """Compiled code of a wheel is not used; the model runs as if it had none."""


class PrecompileError(RuntimeError):
    """The same, and every miss, under HATCH_PRECOMPILE=strict or on-miss = "error"."""


class Unfit(Exception):
    """The bundle as a whole does not fit this process. Its text says why and what to do."""


def give_up(package: str, error: BaseException, mode: str) -> None:
    """One warning that says which wheel, why, and what to do; an error under `strict`."""
    reason = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
    warn(package, f"compiled code is not used: {reason}", mode)


def warn(package: str, text: str, mode: str) -> None:
    """Warn, but for the mode `quiet`; never raise, even where warnings are errors, unless it is `strict`."""
    if mode == "quiet":
        return
    message = f"{package}: {text}"
    if mode == "strict":
        raise PrecompileError(message)
    try:
        warnings.warn(message, PrecompileWarning, stacklevel=2)
    except Exception:  # -W error: an import must not fail for it
        sys.stderr.write(f"{message}\n")


def raised_by_signal(error: BaseException) -> bool:
    """Whether an exception comes out of a handler of a signal, which Python runs wherever it is."""
    signal = sys.modules.get("signal")
    if signal is None or threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    for function in (handler, type(handler).__call__):
        found = getattr(function, "__code__", None)
        if isinstance(found, CodeType):
            return found
    return None
