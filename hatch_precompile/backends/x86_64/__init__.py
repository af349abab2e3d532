"""x86-64: its levels as variants; layers that multiply by functions of ours or by oneDNN."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hatch_precompile.backends.base import Backend, Compiler, Policy, Variant
from hatch_precompile.backends.x86_64.levels import EXTENSIONS, LEVELS, Instructions, highest, march, needed

__all__ = ["BACKEND"]


class X86(Backend):
    """Its capabilities are those of `torch.cpu.get_capabilities()`."""

    name = "x86_64"
    machines = frozenset({"x86_64", "AMD64"})
    variants = tuple(LEVELS)
    in_bfloat16 = ("x86-64-v4-bf16",)

    def capabilities(self) -> frozenset[str]:
        import torch

        return frozenset(name for name, value in torch.cpu.get_capabilities().items() if value is True)

    def variant(self, name: str) -> Variant:
        return Variant(name, needed(name), {"cpp.march": march(name)}, self.name)

    def native_variant(self, capabilities: Collection[str]) -> Variant:
        """The highest level of this machine, tuned for it, and what inductor can use beyond.

        Not -march=native: the compiler would be free to use instructions torch does not report, and a CPU
        without them could not be told.
        """
        level = highest(capabilities)
        requires = needed(level)
        if march(level) == "x86-64-v4":
            requires += tuple(name for name in EXTENSIONS if name in capabilities and name not in requires)
        return Variant(self.native, requires, {"cpp.march": f"{march(level)} -mtune=native"}, self.name)

    def multiplies_bfloat16(self, variant: Variant) -> bool:
        return Instructions(variant.requires).has_bfloat16

    def compiler(self) -> Compiler:
        from hatch_precompile.backends.x86_64.compiler import X86Compiler

        return X86Compiler()

    def policies(self, runtime: Any) -> list[Policy]:
        from hatch_precompile.backends.x86_64.emulated_processors import OtherProcessors

        return [OtherProcessors(runtime)]


BACKEND = X86()
