"""Samples from recorded calls: tensors of the shapes, strides and dtypes that were recorded.

Values are made up. Floats are random, always the same. Integers are 0 and 1, which any table or mask takes:
1 first and then in turn along the last dimension, so that no row of a mask is empty; in one dimension, where
they may be lengths, all are 1. Booleans are True.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.errors import CaptureError
from hatch_precompile.formatting import in_bytes

__all__ = ["sample_of"]


def sample_of(content: dict[str, Any], what: str) -> Sample:
    """A recorded call, made again, in the mode it was made in. Raises CaptureError, which calls it `what`."""
    making = _Making(what)
    try:
        args = tuple(making.value(value) for _, value in content["args"])
        kwargs = {name: making.value(value) for name, value in content["kwargs"].items()}
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:  # torch's own words
        raise CaptureError(f"{what} cannot be made again: {str(error).partition(chr(10))[0]}") from error
    mode = "train" if content["mode"] == "grad" else content["mode"]
    return Sample(args, kwargs, mode=mode)


class _Making:
    def __init__(self, what: str) -> None:
        self._what = what
        self._tensors: list[torch.Tensor] = []
        self._bytes = 0
        self._generator = torch.Generator().manual_seed(0)

    def value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        match value:
            case {"tensor": _}:
                self._tensors.append(self._tensor(value))
                return self._tensors[-1]
            case {"same": number} if number < len(self._tensors):
                return self._tensors[number]
            case {"list": items}:
                return [self.value(each) for each in items]
            case {"tuple": items}:
                return tuple(self.value(each) for each in items)
            case {"dict": items}:
                return {key: self.value(each) for key, each in items.items()}
            case {"string": text}:
                return text
            case {"float": text}:
                return float(text)
            case {"dtype": name}:
                return self._dtype(name)
            case {"device": name}:
                return torch.device(name)
        raise CaptureError(f"{self._what} cannot be made again: {value}")

    def _dtype(self, name: str) -> torch.dtype:
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise CaptureError(f"{self._what} cannot be made again: this torch has no dtype {name}")
        return dtype

    def _tensor(self, record: dict[str, Any]) -> torch.Tensor:
        dtype, size = self._dtype(record["tensor"]), record["size"]
        with torch.inference_mode(record.get("inference", False)), torch.no_grad():
            stride = record.get("stride")
            if stride is None:
                tensor = self._values(size, dtype)
            else:
                last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
                memory = self._values([0 if 0 in size else last + 1], dtype)
                tensor = memory.as_strided(size, stride)
            requires_grad = record.get("requires_grad", False)
            if "class" in record:
                return torch.nn.Parameter(tensor, requires_grad=requires_grad)
            return tensor.requires_grad_() if requires_grad else tensor

    def _values(self, size: list[int], dtype: torch.dtype) -> torch.Tensor:
        self._bytes += math.prod(size) * max(dtype.itemsize, 8)  # made as numbers of eight bytes, or less
        if self._bytes > _half_of_the_memory():
            raise CaptureError(
                f"{self._what} cannot be made again: its tensors have {in_bytes(self._bytes)}, more than "
                "half of the memory here"
            )
        if dtype is torch.bool:
            return torch.ones(size, dtype=dtype)
        if not dtype.is_floating_point and not dtype.is_complex:
            return _indices(size).to(dtype)
        kind = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(size, generator=self._generator, dtype=kind).to(dtype)


def _half_of_the_memory() -> int:
    """In bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _indices(size: list[int]) -> torch.Tensor:
    if len(size) < 2:
        return torch.ones(size, dtype=torch.int64)
    row = 1 - torch.arange(size[-1]) % 2
    return row.expand(math.prod(size[:-1]), size[-1]).reshape(size).contiguous().clone()
