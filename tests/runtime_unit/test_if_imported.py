"""Parts of modules that a process may not have imported: no part of such a module can have changed."""

from __future__ import annotations

import marshal
import sys
from types import ModuleType
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

constants, references = runtime("values.constants"), runtime("values.references")


def make_module(source: str = "def traced(x, times=2): return x * times") -> ModuleType:
    module = ModuleType("imported_late")
    exec(source, vars(module))
    return module


BUILT = make_module()
PARTS = [
    ((("a", "traced"), ("a", "__code__")), references.fingerprint(BUILT.traced.__code__)),
    ((("a", "traced"), ("a", "__defaults__")), marshal.dumps((2,), 2)),
    ((("a", "traced"), ("t", None)), references.fingerprint(type(BUILT.traced))),
]


@pytest.fixture
def parts() -> Any:
    return constants.decode(["if-imported", "imported_late", PARTS])


def test_a_module_that_is_not_imported_is_unchanged(parts: Any) -> None:
    assert parts.unchanged()
    assert "imported_late" not in sys.modules


def test_one_that_is_imported_later_is_looked_at(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts.unchanged()
    monkeypatch.setitem(sys.modules, "imported_late", make_module())
    assert parts.unchanged()


@pytest.mark.parametrize(
    "source",
    [
        "def traced(x, times=2): return x + times",
        "def traced(x, times=3): return x * times",
        "def traced(x, times=2.0): return x * times",
        "class traced: __code__, __defaults__ = None, (2,)",
    ],
)
def test_another_function_is_noticed(parts: Any, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setitem(sys.modules, "imported_late", make_module(source))
    assert not parts.unchanged()


def test_from_then_on_each_part_stays_the_very_object(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_module()
    monkeypatch.setitem(sys.modules, "imported_late", module)
    assert parts.unchanged()
    module.traced.__code__ = make_module().traced.__code__.replace(co_name="other")
    assert not parts.unchanged()


def test_a_part_that_is_gone_raises_which_torch_takes_for_a_refusal(
    parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imported_late", ModuleType("imported_late"))
    with pytest.raises(AttributeError):
        parts.unchanged()
