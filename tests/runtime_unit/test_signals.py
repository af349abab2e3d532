"""What a signal's handler raises goes to the user, also where such an error is one of the runtime's."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

bundle, errors = runtime("loading.bundle"), runtime("errors")
comparison, fingerprints = runtime("dependencies.comparison"), runtime("dependencies.fingerprints")
manifest, references, recording = (
    runtime("loading.manifest"),
    runtime("values.references"),
    runtime("recording.recorder"),
)


@pytest.fixture
def signalled() -> Iterator[Callable[[type[Exception]], Callable[..., Any]]]:
    """Makes a function that gets a signal, whose handler raises an exception."""
    before = signal.getsignal(signal.SIGALRM)

    def make(kind: type[Exception]) -> Callable[..., Any]:
        def handler(*_: Any) -> None:
            raise kind("from the handler")

        signal.signal(signal.SIGALRM, handler)
        return lambda *_, **__: signal.raise_signal(signal.SIGALRM)

    yield make
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", [TimeoutError, ValueError])
def test_while_a_file_is_read(signalled: Any, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"files": {"it": hashlib.sha256(b"").hexdigest()}}
    monkeypatch.setattr(bundle, "open", signalled(kind), raising=False)
    monkeypatch.setattr(manifest, "open", signalled(kind), raising=False)
    monkeypatch.setattr(fingerprints, "of_file", signalled(kind))
    with pytest.raises(kind, match="from the handler"):
        bundle.Bundle("nowhere", "package", files, "").read("it")
    with pytest.raises(kind, match="from the handler"):
        manifest.read_json("nowhere")
    if kind is TimeoutError:
        with pytest.raises(kind, match="from the handler"):
            comparison._file(__name__, "")


@pytest.mark.parametrize("kind", [AttributeError, KeyError, TypeError])
def test_while_a_name_is_followed(
    signalled: Any, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("interrupted")
    module.__getattr__ = signalled(kind)  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "interrupted", module)
    with pytest.raises(kind, match="from the handler"):
        references.resolve("interrupted", (("a", "name"),))


def test_while_a_class_is_asked(signalled: Any) -> None:
    asking = type("asking", (type,), {"__subclasscheck__": signalled(ZeroDivisionError)})
    with pytest.raises(ZeroDivisionError):
        fingerprints._is_subclass(int, asking("Asking", (), {}))
    with pytest.raises(ZeroDivisionError):
        fingerprints._may_say_yes(signalled(ZeroDivisionError), int)


def test_while_a_call_is_recorded(signalled: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "record"
    recorder = recording.Recorder("package", f"record:{record}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", signalled(TimeoutError))
        with pytest.raises(TimeoutError, match="from the handler"):
            recorder._count('{"call":1}')
        patch.setattr(runtime("calling.misses"), "owners_of", signalled(ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            recorder.add(None, {}, served=False)
    recorder._count('{"call":2}')
    assert '"call":2' in record.read_text()


def test_a_handler_that_calls_the_model_is_recorded_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    recorder = recording.Recorder("package", f"record-all:{record}")
    made = recording._Count

    def counting(identity: str) -> Any:
        monkeypatch.setattr(recording, "_Count", made)
        recorder._count('{"call":"of the handler"}')
        return made(identity)

    monkeypatch.setattr(recording, "_Count", counting)
    recorder._count('{"call":"interrupted"}')
    assert len(record.read_text().splitlines()) == 2


class Closed:
    def write(self, text: str) -> None:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stream", [None, Closed()])
def test_a_warning_that_nobody_hears_is_no_error(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors.warn("package", "compiled code is not used", "")


def test_a_handler_within_a_warning(signalled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "warn", signalled(TimeoutError))
    with pytest.raises(TimeoutError, match="from the handler"):
        errors.warn("package", "compiled code is not used", "")
