"""What can go wrong in a build, each with the sentence the author of the project reads."""

from __future__ import annotations

import traceback

__all__ = [
    "BuildError",
    "CaptureError",
    "ConfigError",
    "OutsideError",
    "Unsupported",
    "VerifyError",
    "unforeseen",
]


class BuildError(Exception):
    """A build that cannot go on. Its text is a sentence for the project's author."""


class ConfigError(BuildError):
    """A key of the configuration table is unknown, of the wrong type, or does not resolve."""


class OutsideError(BuildError):
    """What came from outside, such as a wheel or a record, is damaged, or not what it must be."""


class CaptureError(BuildError):
    """An entrypoint could not be imported, instantiated, run or compiled."""


class Unsupported(BuildError):
    """The trace holds something a wheel cannot carry.

    The text names the construct, the source line it comes from and what to do about it.
    """

    def __init__(self, construct: str, where: str = "", advice: str = "") -> None:
        self.construct = construct
        self.where = where
        self.advice = advice
        text = construct
        if where:
            text += f"\n  at {where}"
        if advice:
            text += f"\n  {advice}"
        super().__init__(text)


class VerifyError(BuildError):
    """A finished bundle does not hit, or disagrees with eager, for one of its samples."""


def unforeseen(error: BaseException) -> str:
    """An error that nobody has words for, with the line it comes from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return text + "".join(f" ({each.filename}:{each.lineno} in {each.name})" for each in last)
