"""Whether two processes observed the same: torch.testing's tolerances for tensors, the same for all else."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.truth.observed import Raised, Shown, Tensor

__all__ = ["difference"]


def difference(one: Any, other: Any, *, texts: bool = True, where: str = "") -> str:
    """The first difference, as a sentence; empty where there is none.

    texts: compare what exceptions say, too, and not only their types.
    """
    if type(one) is not type(other):
        return f"{where}: {_short(one)}, not {_short(other)}"
    if isinstance(one, Tensor):
        return _tensors(one, other, where)
    if isinstance(one, Raised):
        same = one.kind == other.kind and (one.text == other.text or not texts)
        return "" if same else f"{where}: raised {_short(one)}, not {_short(other)}"
    if isinstance(one, Shown):
        if one.kind != other.kind:
            return f"{where}: a {one.kind}, not a {other.kind}"
        return difference(one.content, other.content, texts=texts, where=where)
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{where}: keys {list(one)}, not {list(other)}"
        one, other = list(one.items()), list(other.items())
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{where}: {_short(one)}, not {_short(other)}"
        for number, (item, another) in enumerate(zip(one, other, strict=True)):
            found = difference(item, another, texts=texts, where=_below(where, number, item))
            if found:
                return found
        return ""
    if isinstance(one, float):
        close = math.isclose(one, other, rel_tol=1.3e-6, abs_tol=1e-5) or (one != one and other != other)
        return "" if close else f"{where}: {one!r}, not {other!r}"
    return "" if one == other else f"{where}: {_short(one)}, not {_short(other)}"


def _below(where: str, number: int, item: Any) -> str:
    if isinstance(item, tuple) and item and isinstance(item[0], str):
        return f"{where} {item[0]}"
    return f"{where}[{number}]"


def _tensors(one: Tensor, other: Tensor, where: str) -> str:
    for name in ("kind", "dtype", "shape", "strides", "flags"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            return f"{where}: {name} {mine}, not {theirs}"
    if one.data == other.data:
        return ""
    if one.data is None or other.data is None:
        return f"{where}: only one of the two has data"
    try:
        torch.testing.assert_close(_values(one), _values(other), equal_nan=True)
    except AssertionError:
        return f"{where}: {_short(one)}, not {_short(other)}"
    return ""


def _values(tensor: Tensor) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype.removeprefix("torch."))
    data = bytearray(tensor.data or b"")
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(tensor.shape)


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        words = f"{value.dtype.removeprefix('torch.')}{list(value.shape)}"
        if value.data is None:
            return words
        values = _values(value).reshape(-1)[:4]
        numbers = ", ".join(f"{number:.4g}" if number == number else "nan" for number in values.tolist())
        return f"{words} {numbers}"
    if isinstance(value, Raised):
        return f"{value.kind.removeprefix('builtins.')}({value.text[:160]!r})"
    return repr(value)[:160]
