"""64-bit Arm: one level that every such processor has, and what inductor makes by itself."""

from __future__ import annotations

from collections.abc import Collection

from hatch_precompile.backends.base import Backend, Compiler, Variant

__all__ = ["BACKEND"]


class Arm(Backend):
    """Its capabilities are those that Linux names."""

    name = "aarch64"
    machines = frozenset({"aarch64"})
    variants = ("armv8-a",)

    def capabilities(self) -> frozenset[str]:
        return frozenset({"asimd"})

    def variant(self, name: str) -> Variant:
        return Variant(name, ("asimd",), {"cpp.march": "armv8-a"}, self.name)

    def native_variant(self, capabilities: Collection[str]) -> Variant:
        """Left alone, inductor writes for SVE where the build machine has it, and no wheel could tell."""
        level = self.variant("armv8-a")
        return Variant(self.native, level.requires, level.settings, self.name)

    def compiler(self) -> Compiler:
        from hatch_precompile.backends.aarch64.compiler import ArmCompiler

        return ArmCompiler()


BACKEND = Arm()
