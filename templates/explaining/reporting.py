"""What is said while calls are made: HATCH_PRECOMPILE=log, and torch's own TORCH_LOGS=recompiles.

Loaded only where one of the two is set. Nothing on the way of a call that hits leads here, but for the
first hit of each entry.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..calling.activation import Entrypoint, Frame

__all__ = ["BURST", "SECONDS", "Limit", "Log", "logger", "torchs_log"]

BURST = 5
"""So many misses of one function are reported at once."""

SECONDS = 30.0
"""After these, one in so many seconds, with the number of those in between."""


def logger(package: str) -> logging.Logger:
    """The logger `<package>._precompiled`, at INFO; to stderr where the process set up no logging."""
    found = logging.getLogger(f"{package}._precompiled")
    found.setLevel(logging.INFO)
    if not found.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        found.addHandler(handler)
    return found


class Limit:
    """Lets the first through, and then one every so often. Several threads may make it a few more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = BURST
        self._next = 0.0
        self._held = 0

    def passes(self) -> int | None:
        """None for one that is held back; else how many were since the last one that passed."""
        now = self._clock()
        if self._left:
            self._left -= 1
        elif now < self._next:
            self._held += 1
            return None
        self._next = now + SECONDS
        held, self._held = self._held, 0
        return held


class Log:
    """The lines of one wheel. Each record has its facts as a dict in the attribute `precompiled`.

    own: whether HATCH_PRECOMPILE=log asked for it. If not, misses alone are reported, to torch's log.
    """

    def __init__(self, package: str, *, own: bool) -> None:
        self.package = package
        self._own = logger(package) if own else None
        self._limits: dict[Frame, Limit] = {}

    def installed(self, entrypoint: str, entries: int, variant: str | None) -> None:
        text = f"installed {entrypoint}: {entries} entries, {f'variant {variant}' if variant else 'for GPUs'}"
        self._say(text, event="installed", entrypoint=entrypoint, entries=entries, variant=variant)

    def left_out(self, entrypoint: str) -> None:
        text = f"{entrypoint} was left out when the wheel was built, because it failed there"
        self._say(text, event="left out", entrypoint=entrypoint)

    def hit(self, frame: Frame, number: int) -> None:
        """The first hit of an entry."""
        entrypoint = _names(frame.owners)
        text = f"hit of {entrypoint}: {frame.record['qualname']}, entry {number}"
        self._say(text, event="hit", entrypoint=entrypoint, function=frame.record["qualname"], entry=number)

    def miss(self, frame: Frame, frame_locals: dict[str, Any], owners: Sequence[Entrypoint]) -> None:
        """A miss, with the first check that failed of the entry that came nearest, and what would help."""
        torchs = None if self._own else self._torchs()
        if self._own is None and torchs is None:
            return
        held = self._limits.setdefault(frame, Limit()).passes()
        if held is None:
            return
        entrypoint = _names(owners)
        report = frame.installation.why(frame, frame_locals)
        text = f"miss of {entrypoint}: {report['reason']}"
        if report["remedy"]:
            text += f"; {report['remedy']}"
        if held:
            text += f" (and {held} more since the last such line)"
        facts = {
            "event": "miss",
            "entrypoint": entrypoint,
            "function": frame.record["qualname"],
            "misses": frame.misses,
            "held_back": held,
            **{key: report[key] for key in ("entry", "check", "reason", "remedy")},
        }
        self._say(text, **facts)
        if torchs is not None:
            torchs.debug("%s", text)

    def _say(self, text: str, **facts: Any) -> None:
        if self._own is not None:
            from ..torch_internals.torch_frames import at_work  # not before torch is imported

            with at_work():  # a handler may call anything
                self._own.info("%s", text, extra={"precompiled": {"package": self.package, **facts}})

    def _torchs(self) -> logging.Logger | None:
        """Torch's log of recompilations, where somebody reads it and dynamo is there to recompile."""
        if "torch._dynamo" not in sys.modules:
            return None
        from ..torch_internals.torch_private import recompiles_log

        log = recompiles_log(self.package)
        return log if log.isEnabledFor(logging.DEBUG) else None


_torchs_logs: dict[str, Log] = {}


def torchs_log(package: str) -> Log:
    """What reports the misses of a wheel to torch's log alone."""
    return _torchs_logs.setdefault(package, Log(package, own=False))


def _names(entrypoints: Sequence[Entrypoint]) -> str:
    return ", ".join(entrypoint.name for entrypoint in entrypoints)


WHOLE = True
