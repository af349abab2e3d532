"""An exception within a guard: the guard's own, which is a refusal, or one that came from outside."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

is_refusal = runtime("calling.serving").is_refusal


@pytest.fixture
def from_a_handler() -> Iterator[AttributeError]:
    """What a signal's handler raised."""

    def handler(*_: Any) -> None:
        raise AttributeError("from the handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(AttributeError) as caught:
            signal.raise_signal(signal.SIGALRM)
        yield caught.value
    finally:
        signal.signal(signal.SIGALRM, before)


def refusing(frame_locals: dict[str, Any]) -> bool:
    return bool(frame_locals["x"].missing)


def test_a_handlers_is_none_though_the_guard_refuses_with_the_same_type(
    from_a_handler: AttributeError,
) -> None:
    assert not is_refusal(from_a_handler, refusing, {"x": 1})


def test_a_handlers_is_none_where_the_guard_accepts(from_a_handler: AttributeError) -> None:
    assert not is_refusal(from_a_handler, lambda _: True, {})


def test_the_guards_own_is_one() -> None:
    with pytest.raises(AttributeError) as caught:
        refusing({"x": 1})
    assert is_refusal(caught.value, refusing, {"x": 1})


def test_what_does_not_come_twice_is_none() -> None:
    """Another thread's, which Python raises wherever this one is."""
    assert not is_refusal(AttributeError("from elsewhere"), lambda _: True, {})
