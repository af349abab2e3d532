"""The measuring process: `python -m hatch_precompile.tuning.child AUTOTUNING OUTCOME`.

AUTOTUNING is what a bundle has of the kernels of one library, OUTCOME a file to write. The source in it is
run: it is part of the wheel, as its libraries are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from hatch_precompile.errors import unforeseen
from hatch_precompile.processes import connect_to_parent, leave_reason
from hatch_precompile.records import Autotuning
from hatch_precompile.tuning.parent import FAILED, Outcome

__all__ = ["main"]


def main(given: str, outcome: str) -> int:
    connect_to_parent()
    autotuning = msgspec.json.decode(Path(given).read_bytes(), type=Autotuning)
    import torch

    from hatch_precompile.backends.cuda.configurations import measure

    try:
        kernels = measure(autotuning)
        gpu = torch.cuda.get_device_name(0)
    except Exception as error:
        leave_reason(Path(outcome).with_name("error.txt"), f"it cannot be measured: {unforeseen(error)}")
        return FAILED
    Path(outcome).write_bytes(msgspec.json.encode(Outcome(gpu, kernels)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
