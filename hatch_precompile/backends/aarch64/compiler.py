"""How inductor compiles for 64-bit Arm: as by itself, but for the vectors that a variant has.

Layers are torch's own operators, of fixed weights, too. Those for which inductor would pack weights, where it
freezes them, are not taken: of bfloat16 oneDNN has nothing but its reference for such, a hundred times slower
than eager code (pytorch issue 180447). A table of kernels of our own would be looked up in `prepack` here, as
backends/x86_64/layers/packing.py does.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from hatch_precompile.backends.aarch64.vectors import vectors_of
from hatch_precompile.backends.base import Compiler, Variant
from hatch_precompile.inductor.vector_isa import vectors_from

__all__ = ["ArmCompiler"]


class ArmCompiler(Compiler):
    """Left alone, inductor writes for the vectors that the build machine has."""

    def compiling(self, variant: Variant) -> AbstractContextManager[None]:
        return vectors_from(lambda _: [vectors_of(variant.requires)])
