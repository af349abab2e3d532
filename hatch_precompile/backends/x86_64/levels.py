"""The levels of x86-64: what a CPU must have for each, and what it can multiply then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["EXTENSIONS", "LEVELS", "Instructions", "highest", "march", "needed"]

# The x86-64 levels in the names of torch.cpu.get_capabilities(), and the highest with bfloat16; each adds to
# the last.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("sse", "sse2"),
    "x86-64-v2": ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma3", "lzcnt"),
    "x86-64-v4": ("avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl"),
    "x86-64-v4-bf16": ("avx512_bf16",),
}

EXTENSIONS = ("avx512_bf16", "avx512_vnni", "amx_bf16", "amx_fp16", "amx_int8", "amx_tile")
"""What inductor writes for beyond x86-64-v4, where the machine has it."""


@dataclass(frozen=True)
class Instructions:
    """What each CPU has that runs a variant. requires: its capabilities"""

    requires: tuple[str, ...]

    @property
    def has_bfloat16(self) -> bool:
        """AVX-512's products of bfloat16."""
        return "avx512_bf16" in self.requires

    @property
    def has_avx2(self) -> bool:
        return "avx2" in self.requires

    @property
    def has_fma(self) -> bool:
        """AVX2 and its multiplication with addition."""
        return self.has_avx2 and "fma3" in self.requires

    @property
    def has_avx512(self) -> bool:
        return "avx512_f" in self.requires

    @property
    def has_vnni(self) -> bool:
        """AVX-512 and its products of int8."""
        return self.has_avx512 and "avx512_vnni" in self.requires

    @property
    def has_tiles(self) -> bool:
        """AMX, which multiplies bfloat16 and int8."""
        return self.has_vnni and {"amx_tile", "amx_bf16", "amx_int8"} <= set(self.requires)


def highest(capabilities: Collection[str]) -> str:
    """The highest level of a machine that has these."""
    return [name for name in LEVELS if set(capabilities).issuperset(needed(name))][-1]


def march(level: str) -> str:
    """What the compiler calls a level. It is oneDNN that multiplies bfloat16."""
    return level.removesuffix("-bf16")


def needed(level: str) -> tuple[str, ...]:
    """The capabilities of a level, and of those below it."""
    levels = list(LEVELS)
    return tuple(flag for each in levels[: levels.index(level) + 1] for flag in LEVELS[each])
