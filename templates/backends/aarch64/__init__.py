"""What a 64-bit Arm processor has."""

from __future__ import annotations

import platform

__all__ = ["HARDWARE", "here"]

HARDWARE = "CPU"


def here() -> set[str]:
    """By Linux's names: each has Advanced SIMD."""
    return {"asimd"} if platform.machine() == "aarch64" else set()


WHOLE = True
