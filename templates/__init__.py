"""The compiled code this wheel carries, and what it does in this process.

    from <package> import _precompiled
    _precompiled.status()                            # what is installed, hits and misses
    _precompiled.explain("entrypoint", *inputs)      # why a call is not served
    _precompiled.uninstall()                         # as if the wheel had none

The environment variable HATCH_PRECOMPILE changes what importing the package does: `off` installs
nothing, `quiet` warns of nothing, `log` says what was installed, hit and missed, `strict` raises on any miss
or load problem, `record:PATH` appends what missed calls look like to a file, `record-all:PATH` all calls.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["explain", "install", "refresh", "status", "uninstall"]

_installation: Any = None
_reason = "not installed"


def install(variant: str | None = None) -> None:
    """Make the bundle's entries known to this process; called by the package's `__init__`.

    Imports neither torch nor a target: entries are installed once both are there. Never writes, and raises
    only what a signal's handler does, unless HATCH_PRECOMPILE is `strict`, which turns every warning into an
    error.
    variant: whose libraries are used, where this CPU is known to run them; default: the best for this CPU.
    """
    global _installation, _reason
    mode = os.environ.get("HATCH_PRECOMPILE", "")
    if _switched_off() or _installation is not None:
        return
    from .errors import give_up, raised_by_signal
    from .installation import Installation

    package = __name__.rpartition(".")[0]
    try:
        directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bundle")
        _installation = Installation(directory, package, mode, variant)
        _installation.start()
    except Exception as error:
        failed, _installation, _reason = _installation, None, str(error)
        if raised_by_signal(error):  # a time limit of the user's, say
            if failed is not None:
                failed.uninstall()
            raise
        give_up(package, error, mode)


def status() -> dict[str, Any]:
    """What is installed here: `{"installed", "reason", "variant", "cell", "cells", "entrypoints":
    {name: {...}}, "prepared_bytes"}`. `cell`: the Python and torch of what is used; `cells`: all there are.

    Each entrypoint has `entries`, `hits`, `misses`, `active`, `left_out` (reasons, in words), `rounded` (the
    type that factors are rounded to: int8, bfloat16 or None), `skipped` (functions that run as Python) and
    `by_entry`. `prepared_bytes`: what is kept of weights that are fixed.
    """
    if _installation is None:
        reason = _switched_off() or _reason
        nothing: dict[str, Any] = {
            "variant": None,
            "cell": None,
            "cells": [],
            "entrypoints": {},
            "prepared_bytes": 0,
        }
        return {"installed": False, "reason": reason, **nothing}
    from .overview import status_of

    return status_of(_installation)


def refresh() -> None:
    """Have what was computed of weights computed anew, after they were changed in a way that torch does not
    notice: through `.data`, or from outside of torch. For entrypoints with `weights = "fixed"`."""
    if _installation is not None:
        _installation.refresh()


def _switched_off() -> str:
    """What in the environment keeps compiled code out; the last two are torch's own words for that."""
    if os.environ.get("HATCH_PRECOMPILE") == "off":
        return "HATCH_PRECOMPILE=off"
    for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(name) == "1":
            return f"{name}=1"
    return ""


def explain(entrypoint: str, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """For each entry of an entrypoint, whether it would serve the call, and else its first failing check.

    For a class target the first argument is the instance; for a method, the object. Nothing is run
    but guards. Returns `[{"entry", "hit", "check", "reason", "remedy", "passed"}]`, `passed` being how far
    the entry came; raises KeyError for an unknown name.
    """
    if _installation is None:
        raise RuntimeError(f"{__name__} is not installed: {status()['reason']}")
    from .explanation import explain_call

    return explain_call(_installation, entrypoint, args, kwargs)


def uninstall() -> None:
    """Take every entry and wrapper of this wheel back out of the process."""
    global _installation
    if _installation is not None:
        _installation.uninstall()
        _installation = None
