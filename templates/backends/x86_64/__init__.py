"""What an x86-64 processor has."""

from __future__ import annotations

__all__ = ["HARDWARE", "here"]

HARDWARE = "CPU"

# Instructions that torch leaves alone at a capability of its own.
_BEYOND = {
    "DEFAULT": ("avx2", "fma", "avx512", "avx10", "amx"),
    "AVX2": ("avx512", "avx10", "amx"),
}


def here() -> set[str]:
    """By torch's names. Its own ATEN_CPU_CAPABILITY, which keeps its kernels to narrower vectors, keeps ours
    as well."""
    import torch

    beyond = _BEYOND.get(torch.backends.cpu.get_cpu_capability(), ())
    return {
        name
        for name, value in torch.cpu.get_capabilities().items()
        if value is True and not name.startswith(beyond)
    }


WHOLE = True
