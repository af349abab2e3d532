"""Hardware targets: their names, how inductor builds for them, what a CPU must have to run them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from hatch_precompile.errors import ConfigError

__all__ = ["Variant", "variants_for_this_machine"]

# archspec's x86-64 levels in the names of torch.cpu.get_capabilities(); each level adds to the last.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64-v2": ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma3", "lzcnt"),
    "x86-64-v4": ("avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl"),
}
# Width of the vectors inductor writes, in bits; 1 is its word for "no vectors".
_VECTOR_BITS = {"x86-64-v2": 1, "x86-64-v3": 256, "x86-64-v4": 512}
# Reported by torch.cpu.get_capabilities() but no instruction set: what code can run does not depend on it.
_NOT_INSTRUCTIONS = {"architecture", "cpu_name"}


@dataclass(frozen=True)
class Variant:
    """A hardware target. `requires`: CPU capabilities, by torch's names; `settings`: inductor's."""

    name: str
    requires: tuple[str, ...]
    settings: dict[str, Any]


def variants_for_this_machine(names: list[str], capabilities: dict[str, Any]) -> list[Variant]:
    """The declared variants, checked against the build machine's `torch.cpu.get_capabilities()`.

    Raises ConfigError for an unknown name and for a variant this machine cannot run: what cannot be
    run here cannot be verified here.
    """
    here = {name for name, value in capabilities.items() if value is True}
    return [_variant(name, here) for name in names]


def _variant(name: str, here: set[str]) -> Variant:
    if name == "native":
        return Variant(name, tuple(sorted(here - _NOT_INSTRUCTIONS)), {})
    if name not in _LEVELS:
        known = ", ".join(f'"{known}"' for known in ("native", *_LEVELS))
        raise ConfigError(
            f'tool.hatch.build.hooks.precompile.variants: unknown variant "{name}"; known: {known}'
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        raise ConfigError(
            f'tool.hatch.build.hooks.precompile.variants: "{name}" cannot be built on {platform.machine()}'
        )
    levels = list(_LEVELS)
    needed = [flag for level in levels[: levels.index(name) + 1] for flag in _LEVELS[level]]
    missing = [flag for flag in needed if flag not in here]
    if missing:
        raise ConfigError(
            f'tool.hatch.build.hooks.precompile.variants: this machine cannot run "{name}", '
            f"its CPU has no {', '.join(missing)}; build on one that has"
        )
    return Variant(name, tuple(needed), {"cpp.march": name, "cpp.simdlen": _VECTOR_BITS[name]})
