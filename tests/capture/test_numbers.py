"""What a guard asks of numbers that were traced for any value: that the graph gives what Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version

from tests.differential.harness import HeldFrame, hold

X = torch.ones(3, 4)
MOST = 2**63 - 1


def cubed(x: Any, n: Any, f: Any) -> Any:
    return x + 1, n**3


def comes_back(x: Any, n: Any, f: Any) -> Any:
    return x + 1, n**3 // n**2, n * 8 - n * 7


def divides(x: Any, n: Any, f: Any) -> Any:
    return x + 1, 100 // n, 7 % n


def is_divided(x: Any, n: Any, f: Any) -> Any:
    return x + 1, n // 1000, n % -3, n / 3, int(n / 3)


def shifts(x: Any, n: Any, f: Any) -> Any:
    return x + 1, n << 4, 1 << n


def indexes(x: Any, n: Any, f: Any) -> Any:
    return x[n % 3] * 2


def meets_bytes(x: Any, n: Any, f: Any) -> Any:
    return x.to(torch.uint8) + n


def meets_floats(x: Any, n: Any, f: Any) -> Any:
    return x * f, x.half() - n


def becomes_whole(x: Any, n: Any, f: Any) -> Any:
    return x + 1, int(f), round(f)


def raises(x: Any, n: Any, f: Any) -> Any:
    return x + 1, f / n, f * f


def is_only_compared(x: Any, n: Any, f: Any) -> Any:
    return x * 2 if n * n > 10 else x


CASES: list[tuple[Callable[..., Any], list[Any], list[Any]]] = [
    (cubed, [0, -7, 2_097_151, -2_097_152], [3_000_000, -3_000_000, 2**63, -(2**63) - 1, True, 5.0]),
    (comes_back, [1, -5, 2_097_151], [0, 2_097_152, 2**62, 2**63]),
    (divides, [1, -3, MOST, -MOST], [0, MOST + 1]),
    (is_divided, [0, -5, 2**53], [2**53 + 1, -(2**60), 2**63]),
    (shifts, [0, 5, 30], [-1, 31, 40, 62, 64]),
    (indexes, [0, 123456789, -5, MOST], [MOST + 1, 10**30]),
    (meets_bytes, [0, 255], [-1, 256, 2**40]),
    (meets_floats, [0, 65504], [65505, -(2**40)]),
    (is_only_compared, [4, -4, 10**30], [3, 0]),
]
FRACTIONS: list[tuple[Callable[..., Any], list[float], list[float]]] = [
    (meets_floats, [0.0, -2.5, 3e38, float("inf")], [1e39, -1e300, float("nan")]),
    (becomes_whole, [0.0, -2.5, 1e18, -9e18], [1e19, -1e19, float("inf"), float("nan")]),
    (raises, [0.5, 1e150], [float("nan")]),
]


def held(function: Callable[..., Any]) -> HeldFrame:
    with torch.no_grad():
        return hold(function, X, 5, 2.5, numbers=["n", "f"])[0]


def answers(frame: HeldFrame, key: str, values: list[Any]) -> list[bool]:
    with torch.no_grad():
        return [frame.ours({"x": X, "n": 5, "f": 2.5, key: value}) for value in values]


@pytest.mark.parametrize(
    ("function", "right", "wrong"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
def test_whole_numbers(function: Callable[..., Any], right: list[Any], wrong: list[Any]) -> None:
    if function is shifts and Version(torch.__version__) < Version("2.13"):
        pytest.skip("this torch does not trace it")
    frame = held(function)
    assert answers(frame, "n", right) == [True] * len(right)
    assert answers(frame, "n", wrong) == [False] * len(wrong)


@pytest.mark.parametrize(
    ("function", "right", "wrong"), FRACTIONS, ids=lambda each: getattr(each, "__name__", "")
)
def test_fractions(function: Callable[..., Any], right: list[float], wrong: list[float]) -> None:
    frame = held(function)
    assert answers(frame, "f", right) == [True] * len(right)
    assert answers(frame, "f", wrong) == [False] * len(wrong)


def test_a_division_by_zero_is_left_to_python() -> None:
    assert answers(held(raises), "n", [2, 0]) == [True, False]


def test_sizes_count_where_they_are_multiplied() -> None:
    def fifth(x: Any, n: Any, f: Any) -> Any:
        return x + 1, x.size(0) ** 5

    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        frame = hold(fifth, x, 5, 2.5)[0]
        sizes = [frame.ours({"x": torch.ones(size), "n": 5, "f": 2.5}) for size in (4, 6208, 6209, 8192)]
    assert sizes == [True, True, False, False]


def test_of_sizes_alone_nothing_is_asked() -> None:
    def reshapes(x: Any) -> Any:
        return x.view(x.size(0) * x.size(1), -1) * 2

    x = torch.ones(3, 4, 5)
    for dimension in range(2):
        torch._dynamo.mark_dynamic(x, dimension)
    with torch.no_grad():
        assert str(2**63 - 1) not in hold(reshapes, x)[0].source
