"""A kernel that its author wrote in Triton."""

from typing import Any

import torch
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def times(x):
    return x * FACTOR


@triton.jit
def multiply(x, y, n, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < n
    tl.store(y + places, times(tl.load(x + places, mask=inside)), mask=inside)


def tripled(x: Any) -> Any:
    y = torch.empty_like(x)
    multiply[(1,)](x, y, x.numel(), block=512)
    return y + 1
