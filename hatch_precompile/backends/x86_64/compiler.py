"""How inductor compiles for x86-64: with vectors of a level, and with layers that are ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from hatch_precompile.backends.base import Compiler, Variant
from hatch_precompile.backends.x86_64.layers.blas_choice import linear_layers_by_processor
from hatch_precompile.backends.x86_64.layers.convolutions import depthwise_convolutions, own_convolutions
from hatch_precompile.backends.x86_64.layers.epilogues import epilogues_that_keep_nan
from hatch_precompile.backends.x86_64.layers.gru_layers import gru_layers_whole
from hatch_precompile.backends.x86_64.layers.integers import int8_products_by_processor
from hatch_precompile.backends.x86_64.layers.matmul_precision import layers_in_bfloat16
from hatch_precompile.backends.x86_64.layers.memory_format import contiguous_convolutions
from hatch_precompile.backends.x86_64.layers.packing import Packing, pack_layers
from hatch_precompile.backends.x86_64.layers.recurrent import split_gru_layers, split_lstm_layers
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.backends.x86_64.vectors import vectors_within

__all__ = ["X86Compiler"]


class X86Compiler(Compiler):
    def tracing(self, variant: Variant) -> AbstractContextManager[None]:
        return gru_layers_whole()

    @contextlib.contextmanager
    def compiling(self, variant: Variant) -> Iterator[None]:
        with (
            vectors_within(variant.requires),
            linear_layers_by_processor(),
            epilogues_that_keep_nan(),
            own_convolutions(),
            int8_products_by_processor(Instructions(variant.requires)),
        ):
            yield

    def prepack(self, graph: Any, fixed: set[Any], variant: Variant, *, bfloat16: bool) -> None:
        self._split(graph, variant, inference=True)
        pack_layers(graph, fixed, Packing(Instructions(variant.requires), bfloat16))

    def rewrite(self, graph: Any, variant: Variant, *, bfloat16: bool, inference: bool) -> None:
        self._split(graph, variant, inference=inference)
        if bfloat16:
            layers_in_bfloat16(graph)
        if inference:
            if Instructions(variant.requires).has_avx512:
                depthwise_convolutions(graph)
            contiguous_convolutions(graph)

    def _split(self, graph: Any, variant: Variant, *, inference: bool) -> None:
        split_gru_layers(graph)
        if inference and Instructions(variant.requires).has_fma:
            split_lstm_layers(graph)
