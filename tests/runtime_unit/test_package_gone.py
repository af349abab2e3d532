"""What calls do once the runtime's own files are gone: on-miss holds, and no import escapes into a call."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

activation, installation, errors = (
    runtime("calling.activation"),
    runtime("installation"),
    runtime("errors"),
)


def a_site(on_miss: str) -> Any:
    owner = SimpleNamespace(name="one", on_miss=on_miss)
    return SimpleNamespace(frame=SimpleNamespace(owners=[owner]))


def test_a_skipped_target_is_a_miss_like_any_other() -> None:
    with pytest.raises(errors.PrecompileError, match="one serves no call: its package is damaged, or gone"):
        activation._Gone.skipped(a_site("error"), None, {}, None)
    assert activation._Gone.skipped(a_site("eager"), None, {}, None) is None


def test_in_the_middle_of_an_import_nothing_is_a_miss() -> None:
    assert activation._Coming.skipped(a_site("error"), None, {}, None) is None
    assert activation._Coming.missed(a_site("error"), {}) is None


def test_a_miss_imports_nothing_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(installation, "whole", gone)
    found = object.__new__(installation.Installation)
    found.lock, found.reason, found.recorder, found.package = threading.RLock(), "gone", None, "zoo"
    assert found.find_answer(activation.unanswered) is activation.unanswered
    assert found.torchs_log() is None
