"""A graph whose wrappers cannot be put on, as where an interrupt has left torch's compiler half imported."""

from __future__ import annotations

import contextlib
import signal
import warnings
from typing import Any

import pytest
import torch

from hatch_precompile.runtime import runtime

autograd: Any = runtime("graphs.autograd")
GraphFailed: Any = runtime("graphs.callers").GraphFailed


def graph() -> Any:
    return autograd.WrappedGraph(lambda *inputs: inputs, None, b"no pickle", contextlib.nullcontext)


def test_it_leaves_its_calls_to_eager_code_and_says_so_once() -> None:
    call = graph().caller()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(GraphFailed) as failed:
                call(torch.ones(1))
            assert failed.value.rerun
    assert ["a graph runs as eager code: " in str(each.message) for each in said] == [True]


def test_what_a_handler_raises_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: Any) -> None:
        raise TimeoutError("ours")

    before = signal.signal(signal.SIGALRM, handler)
    made = graph()
    try:
        with monkeypatch.context() as patch, pytest.raises(TimeoutError, match="ours"):
            patch.setattr(made, "_wrapped", lambda: signal.raise_signal(signal.SIGALRM))
            made.caller()(torch.ones(1))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert made._failure is None
