"""`hatch_precompile.tuning.child` where nothing can be measured: all but the times is real.

The larger the blocks of a configuration, the faster it is said to be.
"""

from __future__ import annotations

import math
import sys
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.backends.cuda import standin
from hatch_precompile.backends.cuda.cards import CARDS
from hatch_precompile.backends.cuda.triton import triton_compiles_for
from hatch_precompile.tuning.child import main


def milliseconds(kernel: Any, launcher: Any, *args: Any, **kwargs: Any) -> float:
    sizes = [value for value in launcher.config.kwargs.values() if isinstance(value, int)]
    return 1.0 / math.prod(sizes)


def run(kernel: Any, *args: Any, stream: int, **kwargs: Any) -> None:
    """Inductor's, up to the launch."""
    assert all(each.device.type == "cuda" for each in args if isinstance(each, torch.Tensor))
    if not kernel.launchers:
        kernel.precompile()
    if len(kernel.launchers) > 1:
        kernel.autotune_to_one_config(*args, **kwargs)


def empty(size: Any, stride: Any, dtype: Any = None, device: Any = None, extra_size: int = 0) -> Any:
    """In the place of random numbers, which a kernel makes."""
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


if __name__ == "__main__":
    standin.settle()
    standin.counted()
    from torch._inductor import select_algorithm
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    with (
        triton_compiles_for(CARDS["cuda-sm90"]),
        patch.object(select_algorithm, "rand_strided", empty),
        patch.object(CachingAutotuner, "bench", milliseconds),
        patch.object(CachingAutotuner, "run", run),
    ):
        sys.exit(main(*sys.argv[1:]))
