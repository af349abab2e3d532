"""Hardware targets: their names, how inductor builds for them, what a CPU must have to run them."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hatch_precompile.errors import ConfigError

__all__ = ["KNOWN", "Variant", "highest_level", "variants_for_this_machine"]

# The x86-64 levels in the names of torch.cpu.get_capabilities(), and the highest with bfloat16; each adds to
# the last.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("sse", "sse2"),
    "x86-64-v2": ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma3", "lzcnt"),
    "x86-64-v4": ("avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl"),
    "x86-64-v4-bf16": ("avx512_bf16",),
}
KNOWN = ("native", *_LEVELS)
"""The names of variants."""

# What inductor writes for beyond x86-64-v4, where the machine has it.
_EXTENSIONS = ("avx512_bf16", "avx512_vnni", "amx_bf16", "amx_fp16", "amx_int8", "amx_tile")
# Reported by torch.cpu.get_capabilities() but no instruction set: what code can run does not depend on it.
_NOT_INSTRUCTIONS = {"architecture", "cpu_name"}


@dataclass(frozen=True)
class Variant:
    """A hardware target.

    requires: CPU capabilities, by torch's names: code for it uses these and no others
    settings: inductor's configuration
    """

    name: str
    requires: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def has_bfloat16(self) -> bool:
        """Whether each CPU that runs it multiplies bfloat16."""
        return "avx512_bf16" in self.requires

    @property
    def has_fma(self) -> bool:
        """Whether each CPU that runs it has AVX2 and its multiplication with addition."""
        return {"avx2", "fma3"} <= set(self.requires)

    @property
    def has_avx512(self) -> bool:
        """Whether each CPU that runs it has AVX-512."""
        return "avx512_f" in self.requires

    @property
    def has_vnni(self) -> bool:
        """Whether each CPU that runs it has AVX-512 and multiplies int8 with it."""
        return self.has_avx512 and "avx512_vnni" in self.requires

    @property
    def has_tiles(self) -> bool:
        """Whether each CPU that runs it has AMX, which multiplies bfloat16 and int8."""
        return self.has_vnni and {"amx_tile", "amx_bf16", "amx_int8"} <= set(self.requires)


def variants_for_this_machine(
    names: list[str], capabilities: dict[str, Any], table: str = ""
) -> list[Variant]:
    """The declared variants, checked against the build machine's `torch.cpu.get_capabilities()`.

    table: where the author wrote them, for errors. Raises ConfigError for an unknown name and for a
    variant this machine cannot run: what cannot be run here cannot be verified here.
    """
    here = {name for name, value in capabilities.items() if value is True}
    key = f"{table}.variants" if table else "variants"
    return [_variant(name, here, key) for name in names]


def highest_level(names: Iterable[str]) -> str | None:
    """The most demanding of these variants, "native" aside; None where every machine can run them."""
    demanding = [level for level in list(_LEVELS)[1:] if level in set(names)]
    return demanding[-1] if demanding else None


def _variant(name: str, here: set[str], key: str) -> Variant:
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    if name == "native":
        return _native(here) if is_x86 else Variant(name, tuple(sorted(here - _NOT_INSTRUCTIONS)), {})
    if name not in _LEVELS:
        known = ", ".join(f'"{known}"' for known in KNOWN)
        raise ConfigError(f'{key}: unknown variant "{name}"; known: {known}')
    if not is_x86:
        raise ConfigError(f'{key}: "{name}" cannot be built on {platform.machine()}')
    needed = _needed(name)
    missing = [flag for flag in needed if flag not in here]
    if missing:
        raise ConfigError(
            f'{key}: this machine cannot run "{name}", '
            f"its CPU has no {', '.join(missing)}; build on one that has"
        )
    return Variant(name, needed, {"cpp.march": _march(name)})


def _native(here: set[str]) -> Variant:
    """The highest level of this machine, tuned for it, and what inductor can use beyond.

    Not -march=native: the compiler would be free to use instructions torch does not report, and a CPU
    without them could not be told.
    """
    level = [name for name in _LEVELS if here.issuperset(_needed(name))][-1]
    needed = _needed(level)
    if _march(level) == "x86-64-v4":
        needed += tuple(name for name in _EXTENSIONS if name in here and name not in needed)
    return Variant("native", needed, {"cpp.march": f"{_march(level)} -mtune=native"})


def _march(level: str) -> str:
    """What the compiler calls a level. It is oneDNN that multiplies bfloat16."""
    return level.removesuffix("-bf16")


def _needed(level: str) -> tuple[str, ...]:
    levels = list(_LEVELS)
    return tuple(flag for each in levels[: levels.index(level) + 1] for flag in _LEVELS[each])
