"""What a call does that no entry of a frame takes. Loaded with the first such call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .activation import current
from .errors import PrecompileError, raised_by_signal, warn

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame, Site

__all__ = ["UNSERVED", "answer", "owners_of"]

UNSERVED = 10
"""After so many calls of a function, of which none was served, a warning says so."""


def answer(
    frame: Frame, site: Site, frame_locals: dict[str, Any], *, under_compile: bool
) -> Callable[..., Any] | None:
    """Count and report a miss, and give what serves it: None to go on with the body.

    under_compile: a torch.compile of the user's is at work, and compiles what is not served. Raises
    PrecompileError with on-miss = "error", and under `strict` in any case.
    """
    owners = owners_of(frame, frame_locals)
    if not owners:
        return None
    misses = frame.misses = frame.misses + 1
    log = frame.installation.log
    if log is None and "recompiles" in os.environ.get("TORCH_LOGS", ""):
        from .reporting import torchs_log

        log = torchs_log(frame.installation.package)
    if log is not None:
        log.miss(frame, frame_locals)
    strict = frame.installation.mode == "strict"
    if under_compile and not strict:
        return None
    if misses == UNSERVED and not strict:
        _tell_unserved(owners, frame, frame_locals)
    for entrypoint in owners:
        if entrypoint.on_miss == "error":
            _refuse(entrypoint, frame, frame_locals)
        # A JIT compile starts at the target: a frame below it has no way back to there.
        if entrypoint.on_miss == "compile" and entrypoint.owns(frame):
            return site.call_of(site.jitted(frame_locals), frame_locals)
    return None


def owners_of(frame: Frame, frame_locals: dict[str, Any]) -> list[Entrypoint]:
    """The entrypoints this call belongs to: those running on this thread, or those whose own frame it is.

    Classes may share one `forward`: of their own frames, those count whose class the object is of.
    """
    inside = [owner for owner in frame.owners if owner in current.inside]
    if inside:
        return inside
    return [
        owner
        for owner in frame.owners
        if (owner.owns(frame) or frame.record.get("resume") is not None)
        and (
            not isinstance(owner.value, type)
            or "self" not in frame_locals
            or isinstance(frame_locals["self"], owner.value)
        )
    ]


def _tell_unserved(owners: list[Entrypoint], frame: Frame, frame_locals: dict[str, Any]) -> None:
    """Warn, once, of a function that is only ever missed. Whose entries were left out has had a warning."""
    own = [owner for owner in owners if owner.owns(frame)]
    if not own or not frame.entries or any(entry.hits for entry in frame.entries):
        return
    try:
        from .explanation import nearest

        report = nearest(frame, frame_locals)
    except Exception as error:  # the call itself is none of this
        if raised_by_signal(error):
            raise
        report = {"reason": f"it cannot be said why ({type(error).__name__}: {error})", "remedy": ""}
    advice = f"; {report['remedy']}" if report["remedy"] else ""
    names = ", ".join(owner.name for owner in own)
    warn(
        frame.installation.package,
        f"none of {UNSERVED} calls of {names} was served by compiled code: {report['reason']}{advice}",
        frame.installation.mode,
    )


def _refuse(entrypoint: Entrypoint, frame: Frame, frame_locals: dict[str, Any]) -> NoReturn:
    from .explanation import explain_miss

    raise PrecompileError(
        f"{entrypoint.installation.package}: no entry of {entrypoint.name} fits this call: "
        + explain_miss(entrypoint, frame, frame_locals)
    )
