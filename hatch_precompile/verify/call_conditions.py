"""The policies that verification calls each sample under."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hatch_precompile.backends import backends_of

__all__ = ["CallPolicies"]

# A model may change itself when it is called, so that only its first call is served.
_PLAIN = ("", " (called a second time)", " (called a third time)")


class CallPolicies:
    """What the machine or the process decides, decided in more than one way, through the functions that the
    runtime offers for it. runtime: the package `_precompiled` of a wheel, which has loaded nothing yet;
    variant: the name of the one that is verified, or "".
    """

    def __init__(self, runtime: Any, variant: str) -> None:
        self._entries: Any = importlib.import_module(f"{runtime.__name__}.loading.entries")
        self._policies = [each for backend in backends_of(variant) for each in backend.policies(runtime)]

    def native_guards_early(self) -> None:
        """The first call that an entry serves asks its guards as Python, those after it as native code."""
        self._entries.native_after(1)

    def __iter__(self) -> Iterator[tuple[str, AbstractContextManager[None]]]:
        """What follows the sample in messages, and what to enter while it is called. Which there are depends
        on what the calls before have loaded."""
        for words in _PLAIN:
            yield words, nullcontext()
        for policy in self._policies:
            if policy.would_decide():
                yield policy.words, policy.deciding()

    @staticmethod
    def is_repeat(words: str) -> bool:
        """Whether it is the same call again, and nothing is decided otherwise."""
        return words in _PLAIN[1:]
