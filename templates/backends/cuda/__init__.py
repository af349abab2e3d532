"""What NVIDIA's GPUs of this machine have."""

from __future__ import annotations

import sys

__all__ = ["HARDWARE", "here"]

HARDWARE = "GPU"


def here() -> set[str]:
    """The capabilities of the GPUs that this process sees, as "sm_90". Opens the driver, as any call with a
    tensor on a GPU has done before."""
    cuda = sys.modules["torch"].cuda
    return {"sm_{}{}".format(*cuda.get_device_capability(index)) for index in range(cuda.device_count())}


WHOLE = True
