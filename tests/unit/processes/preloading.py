"""A build with a child that is forked."""

import sys
from pathlib import Path

from hatch_precompile.processes import preloaded, run_module

with preloaded("lingering", sys.argv[1], inherit=True):
    run_module(
        "lingering",
        [sys.argv[1]],
        paths=[Path(sys.argv[2])],
        environment={},
        inherit=True,
        quiet_limit=60,
        on_line=print,
        on_message=lambda line: print(line, flush=True),
    )
