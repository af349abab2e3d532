"""64-bit Arm: its levels as variants, in the vectors that inductor has for each."""

from __future__ import annotations

from collections.abc import Collection

from hatch_precompile.backends.aarch64.levels import LEVELS, highest, needed
from hatch_precompile.backends.base import Backend, Compiler, Variant
from hatch_precompile.runtime import runtime

__all__ = ["BACKEND"]


class Arm(Backend):
    """Its capabilities are those that Linux names."""

    name = "aarch64"
    machines = frozenset({"aarch64"})
    variants = tuple(LEVELS)

    def capabilities(self) -> frozenset[str]:
        """By the code that asks where a wheel runs."""
        return frozenset(runtime("backends.aarch64").here())

    def variant(self, name: str) -> Variant:
        return Variant(name, needed(name), {"cpp.march": LEVELS[name].march}, self.name)

    def native_variant(self, capabilities: Collection[str]) -> Variant:
        """The highest level of this machine that its compiler can compile for.

        Not -march=native: the compiler would be free to use what no level has, and no wheel could tell.
        """
        from hatch_precompile.backends.aarch64.vectors import compiler_that_fails

        level = highest(capabilities)
        if compiler_that_fails(needed(level)):
            level = highest([each for each in capabilities if each != "sve"])
        of_level = self.variant(level)
        return Variant(self.native, of_level.requires, of_level.settings, self.name)

    def cannot_compile(self, variant: Variant) -> str:
        from hatch_precompile.backends.aarch64.vectors import compiler_that_fails

        return compiler_that_fails(variant.requires)

    def compiler(self) -> Compiler:
        from hatch_precompile.backends.aarch64.compiler import ArmCompiler

        return ArmCompiler()


BACKEND = Arm()
