"""What a 64-bit Arm processor has, as the kernel says: torch reads /proc/cpuinfo, which may not say it."""

from __future__ import annotations

import os

__all__ = ["HARDWARE", "here"]

HARDWARE = "CPU"

# The kernel's names for what a processor has, of those that a variant requires, and the bit of each:
# Documentation/arch/arm64/elf_hwcaps.rst.
_HWCAP = {
    "asimd": 1,
    "crc32": 7,
    "atomics": 8,
    "fphp": 9,
    "asimdhp": 10,
    "asimdrdm": 12,
    "asimddp": 20,
    "sve": 22,
}
_HWCAP2 = {"svei8mm": 9, "svebf16": 12, "i8mm": 13, "bf16": 14}

_AT_HWCAP, _AT_HWCAP2 = 16, 26
_PR_SVE_GET_VL, _LENGTH_IN_BYTES = 51, 0xFFFF


def here() -> set[str]:
    """By the kernel's names, and `sve256` where SVE has vectors of 256 bits, which code has to know.
    Torch's own ATEN_CPU_CAPABILITY, which keeps its kernels from SVE, keeps ours as well."""
    if os.uname().machine != "aarch64":
        return set()  # the same bits say something else there
    import ctypes  # torch has imported it

    libc = ctypes.CDLL(None)
    libc.getauxval.argtypes, libc.getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    found = set()
    for entry, bits in ((_AT_HWCAP, _HWCAP), (_AT_HWCAP2, _HWCAP2)):
        value = libc.getauxval(entry)
        found |= {name for name, bit in bits.items() if value >> bit & 1}
    if os.environ.get("ATEN_CPU_CAPABILITY") == "default":
        return {name for name in found if not name.startswith("sve")}
    if "sve" in found and libc.prctl(_PR_SVE_GET_VL) & _LENGTH_IN_BYTES == 32:
        found.add("sve256")
    return found


WHOLE = True
