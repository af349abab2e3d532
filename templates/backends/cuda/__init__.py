"""What NVIDIA's GPUs of this machine have, and which entries they run.

Loaded by the first call that has a tensor on a GPU: torch has opened the driver by then.
"""

from __future__ import annotations

import sys
from typing import Any

from ...torch_internals.torch_private import TensorCheck, dispatching_as, index_of, tensor_guards
from ...values.references import Stale

__all__ = ["HARDWARE", "Gpu", "TensorsOnOneGpu", "check_cuda", "here", "is_opened"]

HARDWARE = "GPU"

# From this major capability on, code is for one capability alone; below, for it and those above of its major.
_ALONE = 9


def here() -> set[str]:
    """The capabilities of the GPUs that this process sees, as "sm_90". Opens the driver."""
    cuda = sys.modules["torch"].cuda
    return {"sm_{}{}".format(*cuda.get_device_capability(index)) for index in range(cuda.device_count())}


def is_opened() -> bool:
    """Whether this process uses a GPU already."""
    return bool(sys.modules["torch"].cuda.is_initialized())


def check_cuda(built_with: dict[str, str]) -> None:
    """Raise OtherCuda for a torch that is built for another CUDA than the one that entries are for."""
    cuda = sys.modules["torch"].version.cuda
    if cuda != built_with.get("cuda"):
        raise OtherCuda(
            f"it was built with torch for CUDA {built_with.get('cuda')}, this one is for {cuda or 'none'}",
            "install the torch for that CUDA, or a wheel built with this one",
        )


class OtherCuda(Stale):
    """Torch is built for another CUDA. That is final; after a plain Stale, an entry is loaded again later."""


class Gpu:
    """Which GPUs run an entry: those of a capability; if it is pinned, the first one alone, and while that is
    the current one."""

    def __init__(self, requires: str, *, pinned: bool) -> None:
        """requires: a capability, as "sm_90"."""
        self._requires = int(requires.rpartition("_")[2])
        self._pinned = pinned
        self._runs: dict[int, bool] = {}

    def __str__(self) -> str:
        major, minor = divmod(self._requires, 10)
        newer = f" to {major}.9" if major < _ALONE else ""
        alone = ", the first of this process, while it is the current one" if self._pinned else ""
        return f"a GPU of capability {major}.{minor}{newer}{alone}"

    def serves(self, *tensors: Any) -> bool:
        """Whether the one GPU that these are all on runs the entry; without tensors, the current GPU."""
        if tensors:
            index = index_of(tensors[0])
            if any(index_of(tensor) != index for tensor in tensors[1:]):
                return False
        else:
            index = sys.modules["torch"].cuda.current_device() if is_opened() else -1
        if index < 0 or (self._pinned and not index == 0 == sys.modules["torch"].cuda.current_device()):
            return False
        runs = self._runs.get(index)
        if runs is None:
            runs = self._runs[index] = self._is_run_by(index)
        return runs

    def _is_run_by(self, index: int) -> bool:
        major, minor = sys.modules["torch"].cuda.get_device_capability(index)
        own_major, own_minor = divmod(self._requires, 10)
        return major == own_major and (minor == own_minor or (major < _ALONE and minor > own_minor))


class TensorsOnOneGpu:
    """Torch's check of a group of tensors that lie on one GPU, whichever that is, or on the CPU."""

    def __init__(self, group: tuple[Any, Any], dispatch: tuple[int, int]) -> None:
        self._group = group
        self._dispatch = dispatch
        kinds, numbers = group
        there = (place for place, number in enumerate(numbers) if kinds[number][5].startswith("cuda"))
        self._place = next(there, None)
        self._made: dict[int, TensorCheck] = {}

    def check(self, *tensors: Any) -> bool:
        found = self._of(tensors)
        return found is not None and found.check(*tensors)

    unsafe = check
    """What native guards call. Torch's own must not be called from Python before it was looked at what it
    reads (see TensorCheck)."""

    def check_verbose(self, *tensors: Any, tensor_check_names: list[str]) -> str:
        """The first that differs, in torch's words."""
        return (self._of(tensors) or self._on(0)).check_verbose(
            *tensors, tensor_check_names=tensor_check_names
        )

    def _of(self, tensors: tuple[Any, ...]) -> TensorCheck | None:
        if self._place is None:
            return self._on(0)
        index = index_of(tensors[self._place])
        return self._on(index) if index >= 0 else None

    def _on(self, index: int) -> TensorCheck:
        """That for one GPU. The examples that it is made from have no memory."""
        if index not in self._made:
            with dispatching_as(*self._dispatch):
                self._made[index] = tensor_guards(self._group, index)
        return self._made[index]


WHOLE = True
