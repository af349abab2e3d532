"""When an entry's guard becomes native code, and what happens where it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Site


def test_it_does_after_ten_calls_and_answers_the_same(zoo: Site) -> None:
    seen = zoo.play("native_guards.many_calls")
    assert seen["kinds"] == [*["function"] * 9, *["builtin_function_or_method"] * 5]
    assert (seen["hits"], seen["again"], seen["missed"]) == (14, 1, 1)
    assert seen["explained"]
    assert seen["imported"] == []


def test_a_damaged_library_leaves_python(zoo_copy: Site) -> None:
    seen = zoo_copy.play("native_guards.a_damaged_library")
    assert (set(seen["kinds"]), seen["hits"]) == ({"function"}, 24)
    (said,) = seen["said"]
    assert "run as Python: mlp/guards.so is damaged" in said


def test_a_nested_tensor_is_a_miss(zoo: Site) -> None:
    """Torch's own check of tensors would end the process."""
    seen = zoo.play("native_guards.nested_tensors")
    assert len(seen["said"]) == 3 and len(set(seen["said"])) == 1
    assert seen["kinds"][-1] == "builtin_function_or_method"
    assert "x is a nested tensor; needed: " in seen["why"]
