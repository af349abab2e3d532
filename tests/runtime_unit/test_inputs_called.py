"""Inputs that are found out by a call: what is raised there is told from what comes from outside."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

comparison: Any = runtime("dependencies.comparison")
Stale: Any = runtime("values.references").Stale


class Alarm(Exception):
    """What the handler raises."""


@pytest.fixture(autouse=True)
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def handler(*_: Any) -> None:
        raise Alarm

    monkeypatch.setattr(comparison, "decode", lambda value: value)
    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


def test_what_a_call_raises_makes_it_stale() -> None:
    def fails() -> None:
        raise Alarm

    with pytest.raises(Stale, match="raises Alarm here"):
        comparison._call(fails, (), {}, 1, "fails")


def test_what_a_handler_raises_goes_on() -> None:
    with pytest.raises(Alarm):
        comparison._call(lambda: signal.raise_signal(signal.SIGALRM), (), {}, 1, "interrupted")
