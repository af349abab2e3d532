"""The capability of this machine's first GPU, as the driver tells it to a process that then ends: who has
asked it once cannot be forked and use a GPU."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["capability"]

_SECONDS = 60.0
_ASK = """
import ctypes, sys
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit("there is no driver")
device, value = ctypes.c_int(), ctypes.c_int()
if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
    sys.exit("the driver has no GPU")
for attribute in (75, 76):
    driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    print(value.value)
"""


def capability() -> tuple[int, int] | None:
    """As (9, 0); None where there is no GPU. CUDA_VISIBLE_DEVICES says which is the first."""
    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-c", _ASK], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:  # a driver that hangs runs nothing
        return None
    found = asked.stdout.split()
    return (int(found[0]), int(found[1])) if asked.returncode == 0 and len(found) == 2 else None
