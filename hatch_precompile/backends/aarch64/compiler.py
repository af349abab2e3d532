"""How inductor compiles for 64-bit Arm: as by itself, but for the vectors that every such processor has."""

from __future__ import annotations

from contextlib import AbstractContextManager

from hatch_precompile.backends.base import Compiler, Variant
from hatch_precompile.inductor.architecture import vectors_from

__all__ = ["ArmCompiler"]


class ArmCompiler(Compiler):
    """Where the build machine has SVE, inductor would write for that."""

    def compiling(self, variant: Variant) -> AbstractContextManager[None]:
        from torch._inductor import cpu_vec_isa

        return vectors_from(lambda _: [cpu_vec_isa.VecNEON()])
