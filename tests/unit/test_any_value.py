"""Which inputs of a frame are traced for any value although nothing of them is declared."""

from __future__ import annotations

import pytest
from torch._dynamo.pgo import FrameStateSizeEntry, auto_dynamic

from hatch_precompile.tracing.any_value import AnyValue

CODE = (lambda: None).__code__


def of_tensor(*size: int) -> FrameStateSizeEntry:
    return FrameStateSizeEntry.make_tensor(size, (1,) * len(size))


@pytest.fixture
def values() -> AnyValue:
    return AnyValue(["scale"])


def sizes(values: AnyValue, *size: int, name: str = "L['x']") -> list[int | None]:
    seen = values.traced(CODE, name, of_tensor(*size)).size
    return [None if each is auto_dynamic else each for each in seen]


def is_any(values: AnyValue, number: float, name: str = "L['n']") -> bool:
    return values.traced(CODE, name, FrameStateSizeEntry.make_scalar(number)).scalar is auto_dynamic


class TestSizes:
    def test_those_of_samples_are_their_own(self, values: AnyValue) -> None:
        assert sizes(values, 8, 4) == [8, 4]
        assert sizes(values, 2, 4) == [2, 4]

    def test_what_is_another_one_in_other_sizes_may_be_any(self, values: AnyValue) -> None:
        sizes(values, 8, 4)
        values.resized = True
        assert sizes(values, 8, 4) == [8, 4]
        assert sizes(values, 9, 4) == [None, 4]
        assert sizes(values, 8, 4) == [None, 4]

    def test_of_several_samples_it_is_compared_with_the_nearest(self, values: AnyValue) -> None:
        sizes(values, 8, 16)
        sizes(values, 4, 32)
        values.resized = True
        assert sizes(values, 5, 32) == [None, 32]

    def test_another_input_and_another_number_of_dimensions_say_nothing(self, values: AnyValue) -> None:
        sizes(values, 8, 4)
        values.resized = True
        assert sizes(values, 9, 4, name="L['y']") == [9, 4]
        assert sizes(values, 9, 4, 1) == [9, 4, 1]


class TestNumbers:
    def test_one_that_is_declared_may_be_any(self, values: AnyValue) -> None:
        assert is_any(values, 3, "L['scale']")
        assert not is_any(values, 3)

    def test_a_float_that_is_another_in_one_sample_may_be_any(self, values: AnyValue) -> None:
        assert not is_any(values, 0.5)
        assert is_any(values, 0.25)
        values.next_sample()
        assert not is_any(values, 0.125)

    def test_an_int_is_a_sample_s_own_but_in_other_sizes(self, values: AnyValue) -> None:
        assert not is_any(values, 8)
        assert not is_any(values, 9)
        values.resized = True
        assert not is_any(values, 9)
        assert is_any(values, 10)
        assert is_any(values, 9)
