"""What a call does that no entry of a frame takes. Loaded with the first such call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import PrecompileError, warn
from ..torch_internals import torch_private
from ..values.static_lookup import mro_of
from .activation import current
from .prologue import arguments_of
from .serving import call_of, jitted

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame, Site

__all__ = ["UNSERVED", "answer", "frames_asked", "owners_of"]

# Read once, as torch does.
_LOGGED = "recompiles" in os.environ.get("TORCH_LOGS", "")

_compilers: dict[str, bool] = {}  # by package; another thread may ask, too

UNSERVED = 10
"""After so many calls of a function, of which none was served, a warning says so."""


def answer(site: Site, frame_locals: dict[str, Any], *, under_compile: bool) -> Callable[..., Any] | None:
    """Count and report a miss, and give what serves it: None to go on with the body.

    under_compile: a torch.compile of the user's is at work, and compiles what is not served. Raises
    PrecompileError with on-miss = "error", and under `strict` in any case.
    """
    for each in frames_asked(site, under_compile=under_compile):
        served = _answer(each, site, frame_locals, under_compile)
        if served is not None:
            return served
    return None


def frames_asked(site: Site, *, under_compile: bool) -> Sequence[Frame]:
    """The frames whose entries were asked for this call and refused. One function may belong to several, as
    a `forward` to its class and to a derived one. The site with the innermost prologue is asked last, and
    answers for all; the others have nothing to answer."""
    if not site.inner and not site.outer:
        return (site.frame,)
    if any(under_compile or _serves(other.frame) for other in site.inner):
        return ()
    return site.frame, *(other.frame for other in site.outer if under_compile or _serves(other.frame))


def _serves(frame: Frame) -> bool:
    return frame.served or frame.is_inside()


def _answer(
    frame: Frame, site: Site, frame_locals: dict[str, Any], under_compile: bool
) -> Callable[..., Any] | None:
    owners = owners_of(frame, frame_locals)
    if not owners:
        return None
    frame.misses += 1
    for owner in owners:
        owner.misses[frame] = owner.misses.get(frame, 0) + 1
    log = frame.installation.log
    if log is None and _LOGGED:
        log = frame.installation.torchs_log()
    if log is not None:
        log.miss(frame, frame_locals, owners)
    strict = frame.installation.mode == "strict"
    if under_compile and not strict:
        return None
    if frame.misses == UNSERVED and not strict:
        _tell_unserved(owners, frame, frame_locals)
    for entrypoint in owners:
        if entrypoint.on_miss == "error":
            _refuse(entrypoint, frame, frame_locals)
        # A JIT compile starts at the target: a frame below it has no way back to there.
        if entrypoint.on_miss == "compile" and entrypoint.owns(frame) and _can_compile(frame):
            return call_of(site, jitted(site, frame_locals), frame_locals)
    return None


def _can_compile(frame: Frame) -> bool:
    """Whether a compiler is there, which is not needed to run wheels; if none is, that is said once."""
    installation = frame.installation
    known = _compilers.get(installation.package)
    if known is None:
        problem = torch_private.no_compiler()
        known = _compilers[installation.package] = not problem
        if problem:
            warn(
                installation.package,
                'calls that no entry fits run as they are: on-miss = "compile", and torch finds no C++ '
                f"compiler ({problem}); install one, or set CXX",
                installation.mode,
            )
    return known


def owners_of(frame: Frame, frame_locals: dict[str, Any]) -> Sequence[Entrypoint]:
    """The entrypoints this call belongs to: those running on this thread, or those whose own frame it is.

    Classes may share one `forward`: a call on an object belongs to the declared class that comes first in the
    MRO of the object's class.
    """
    owners = frame.owners
    if len(owners) == 1 and not current.inside and owners[0].owns(frame):
        # Nearly always so, and found without a look at other classes.
        target = owners[0].value
        if type(target) is FunctionType or type(frame_locals.get("self")) is target:
            return owners
    if current.inside:
        inside = [owner for owner in frame.owners if owner in current.inside]
        if inside:
            return inside
    own = [owner for owner in frame.owners if owner.owns(frame) or frame.record.get("resume") is not None]
    if not any(isinstance(owner.value, type) for owner in own):
        return own
    receiver = _receiver(frame, frame_locals)
    if receiver is _UNKNOWN:
        return own
    declared = [owner.value for owner in frame.installation.entrypoints.values()]
    nearest = next((cls for cls in mro_of(type(receiver)) if any(cls is each for each in declared)), None)
    return [owner for owner in own if not isinstance(owner.value, type) or owner.value is nearest]


_UNKNOWN: Any = object()


def _receiver(frame: Frame, frame_locals: dict[str, Any]) -> Any:
    """What a method is called on: its first argument, which a decorator may take as one of `*args`."""
    if "self" in frame_locals or frame.record.get("resume") is not None:
        return frame_locals.get("self", _UNKNOWN)
    names = arguments_of(frame.code)
    first = frame_locals.get(names[0], _UNKNOWN) if names else _UNKNOWN
    if frame.code.co_argcount or type(first) is not tuple:
        return first if frame.code.co_argcount else _UNKNOWN
    return first[0] if first else _UNKNOWN


def _tell_unserved(owners: Sequence[Entrypoint], frame: Frame, frame_locals: dict[str, Any]) -> None:
    """Warn, once, of a function that is only ever missed. Whose entries were left out has had a warning."""
    own = [owner for owner in owners if owner.owns(frame)]
    if not own or not frame.entries or any(entry.hits for entry in frame.entries):
        return
    if any(owner.name in frame.installation.left_out for owner in own):
        return
    report = frame.installation.why(frame, frame_locals)
    advice = f"; {report['remedy']}" if report["remedy"] else ""
    names = ", ".join(owner.name for owner in own)
    warn(
        frame.installation.package,
        f"none of {UNSERVED} calls of {names} was served by compiled code: {report['reason']}{advice}",
        frame.installation.mode,
    )


def _refuse(entrypoint: Entrypoint, frame: Frame, frame_locals: dict[str, Any]) -> NoReturn:
    report = frame.installation.why(frame, frame_locals)
    told = f"{report['reason']}; {report['remedy']}" if report["remedy"] else str(report["reason"])
    left_out = entrypoint.installation.left_out.get(entrypoint.name, ())
    raise PrecompileError(
        f"{entrypoint.installation.package}: no entry of {entrypoint.name} fits this call: "
        + "; left out: ".join([told, *(each for each in left_out if each not in told)])
    )


WHOLE = True
