"""What the runtime says where compiled code is not used. Nothing but the standard library."""

from __future__ import annotations

import sys
import warnings

__all__ = ["PrecompileError", "PrecompileWarning", "Unfit", "give_up", "warn"]


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
