"""A build with two such children."""

import signal
import sys
from pathlib import Path

from hatch_precompile.processes import in_parallel, run_module, stopping_children

# A shell has what it starts in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def say(line):  # two threads: a line is one piece of writing
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def one(number):
    return run_module(
        "lingering",
        [sys.argv[1]],
        paths=[Path(sys.argv[2])],
        environment={},
        inherit=True,
        quiet_limit=60,
        on_line=print,
        on_message=say,
    )


try:
    with stopping_children():
        in_parallel(one, [1, 2], 2)
finally:
    print("cleaned up", flush=True)
