"""The levels of 64-bit Arm: what a CPU must have for each, and what the compiler calls it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["LEVELS", "Level", "highest", "needed"]


@dataclass(frozen=True)
class Level:
    """requires: what it adds to the level below. march: for the compiler, whose code needs nothing else"""

    requires: tuple[str, ...]
    march: str


# In the kernel's names. Graviton2 and Ampere Altra have armv8.2-a; Graviton4, Grace and Apple's M2 -bf16;
# Graviton3 -sve256. For SVE with vectors of 128 bits torch's headers have the code of Advanced SIMD.
LEVELS: dict[str, Level] = {
    "armv8-a": Level(("asimd",), "armv8-a"),
    "armv8.2-a": Level(
        ("crc32", "atomics", "asimdrdm", "fphp", "asimdhp", "asimddp"), "armv8.2-a+fp16+dotprod"
    ),
    "armv8.2-a-bf16": Level(("bf16", "i8mm"), "armv8.2-a+fp16+dotprod+bf16+i8mm"),
    "armv8.2-a-sve256": Level(
        ("sve", "svebf16", "svei8mm", "sve256"), "armv8.2-a+fp16+dotprod+bf16+i8mm+sve"
    ),
}


def highest(capabilities: Collection[str]) -> str:
    """The highest level of a machine that has these."""
    return [name for name in LEVELS if set(capabilities).issuperset(needed(name))][-1]


def needed(level: str) -> tuple[str, ...]:
    """The capabilities of a level, and of those below it."""
    levels = list(LEVELS)
    return tuple(flag for each in levels[: levels.index(level) + 1] for flag in LEVELS[each].requires)
