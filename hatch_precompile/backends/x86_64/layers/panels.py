"""Layers whose weights are fixed, in panels: multiplied by functions that are compiled into the library.

oneDNN sets up a product at each call, for 20 to 30 microseconds, and torch does not let anybody keep what it
sets up. For a token or a sentence, that is a third of a product's time or more. These functions start at
once, read each weight once, in the order in which it lies in memory, and ask for the next ones while they
multiply. On Granite Rapids they take 0.4 to 0.5 of oneDNN's time for 16 rows, 0.7 to 0.85 for 64, and as long
for 512, of float32 and of bfloat16, which the tiles of AMX multiply; of int8 0.6, 0.5 and 0.4. Those for AVX2
are faster than oneDNN's for AVX-512 up to 32 rows, and on Zen 3, which has only that, for any number.
Seen in torch 2.13.0 (torch/_inductor/graph.py: `_inductor_lowering_function`, as patterns have it).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import torch

from hatch_precompile.inductor.bfloat16_factors import rounds_factors
from hatch_precompile.inductor.extern_kernels import (
    OTHERWISE,
    call_of,
    calls_c_functions,
    lowered,
    lowers_itself,
)
from hatch_precompile.inductor.prepacking.steps import own_step
from hatch_precompile.runtime import runtime

__all__ = [
    "COLUMNS",
    "FUNCTIONS",
    "FEW_ROWS",
    "FEW_ROWS_OF_AVX512",
    "WORDS_AT_ONCE",
    "bfloat16_layer",
    "in_panels",
    "int8_layer",
    "layer",
    "packed_here",
]

aten = torch.ops.aten

FEW_ROWS, FEW_ROWS_OF_AVX512 = 32, 128
"""Up to so many rows our functions are used on a processor with AVX-512: those written for AVX2, and those
for AVX-512. At twice as many rows oneDNN was about as fast as the latter."""

COLUMNS: int = runtime("backends.x86_64.steps").COLUMNS
"""Of the weight that a panel has: as many floats as one vector of AVX-512 holds, or two of AVX2."""

WORDS_AT_ONCE = 16
"""The rows of an AMX tile: a panel of bfloat16 (two to a word) or int8 (four) is filled up to a multiple."""

FUNCTIONS = OTHERWISE + files(__package__).joinpath("panels.h").read_text("utf-8")


# Targets of nodes, and how inductor lowers them. To see what a graph makes of tensors, they are called with
# these, too.


def in_panels(weight: Any) -> Any:
    """(n, k) of float32 to (panels, k, 16), the last filled up. The runtime does it, but for a weight that
    the graph itself makes, and returns."""
    if isinstance(weight, torch.Tensor):
        n, k = weight.shape
        return weight.new_empty(-(-n // COLUMNS), k, COLUMNS)
    n, k = map(int, weight.get_size())
    if n % COLUMNS:
        weight = lowered(aten.constant_pad_nd, weight, [0, 0, 0, -n % COLUMNS])
    split = lowered(aten.view, weight, [-(-n // COLUMNS), COLUMNS, k])
    return lowered(aten.permute, split, [0, 2, 1])


def packed_here(weight: Any) -> Any:
    """The same, but that the runtime packs it for oneDNN where the processor has AVX-512."""
    return in_panels(weight)


own_step(in_panels, "x86_64:in_panels")
own_step(packed_here, "x86_64:packed_here", everywhere="x86_64:in_panels")


def layer(x: Any, weight: Any, bias: Any, n: int) -> Any:
    """(m, k) of float32 to (m, n). weight: as `in_panels` or `packed_here` gives it; bias: (n) or
    None."""
    if isinstance(x, torch.Tensor):
        return x.new_empty(x.shape[0], n)
    if not calls_c_functions():
        factors = x, _unpacked(weight, [0, 2, 1], n, x.get_size()[1])
        return lowered(aten.mm, *factors) if bias is None else lowered(aten.addmm, bias, *factors)
    given = [x, weight] if bias is None else [x, weight, bias]
    constants = (n,) if bias is not None else (None, n)
    return call_of(FUNCTIONS, "aoti_torch_cpu_precompiled_panels", given, constants, n, torch.float32)


def bfloat16_layer(x: Any, weight: Any, bias: Any, n: int) -> Any:
    """(m, k) of float32, which is rounded, or bfloat16 to (m, n) of the same, summed in float32. weight:
    (panels, words, 16, 2) of bfloat16; bias: (n), as x, or None."""
    if isinstance(x, torch.Tensor):
        return x.new_empty(x.shape[0], n)
    dtype = x.get_dtype()
    if not calls_c_functions():
        factors = _cast(x, torch.bfloat16), _unpacked(weight, [0, 2, 1, 3], n, x.get_size()[1])
        if bias is None or dtype == torch.bfloat16:
            product = lowered(aten.mm, *factors) if bias is None else lowered(aten.addmm, bias, *factors)
            return _cast(product, dtype)
        return lowered(aten.add, _cast(lowered(aten.mm, *factors), dtype), bias, overload="Tensor")
    given = [x, weight] if bias is None else [x, weight, bias]
    constants = (n,) if bias is not None else (None, n)
    return call_of(FUNCTIONS, _name_for(x, weight), given, constants, n, dtype)


def int8_layer(x: Any, weight: Any, n: int) -> Any:
    """(m, k) of uint8 or int8 to (m, n) of int32. weight: (panels, words, 16, items of a word), of int8; four
    items to a word are multiplied by AMX or VNNI."""
    if isinstance(x, torch.Tensor):
        return x.new_empty(x.shape[0], n, dtype=torch.int32)
    if not calls_c_functions():
        return lowered(aten._int_mm, x, _unpacked(weight, [0, 2, 1, 3], n, x.get_size()[1]))
    return call_of(FUNCTIONS, _name_for(x, weight), [x, weight], (n,), n, torch.int32)


for _target in (in_panels, packed_here, layer, bfloat16_layer, int8_layer):
    lowers_itself(_target)
rounds_factors(bfloat16_layer, "bfloat16")
rounds_factors(int8_layer, "int8")


def _name_for(x: Any, weight: Any) -> str:
    """The function for rows of such numbers, so many to a word."""
    kind = str(x.get_dtype()).removeprefix("torch.")
    return f"aoti_torch_cpu_precompiled_panels_{kind}_by_{int(weight.get_size()[-1])}"


def _unpacked(weight: Any, order: list[int], n: int, k: int) -> Any:
    """Panels as what they were made of, transposed: (k, n)."""
    transposed = lowered(aten.permute, weight, order)
    whole = lowered(aten.view, transposed, [-(-n // COLUMNS) * COLUMNS, -1])
    for dimension, size in enumerate((n, k)):
        whole = lowered(aten.slice, whole, dimension, 0, size, overload="Tensor")
    return lowered(aten.permute, whole, [1, 0])


def _cast(x: Any, dtype: torch.dtype) -> Any:
    from torch._inductor.lowering import to_dtype

    return to_dtype(x, dtype)
