"""Verification, the process: `python -m hatch_precompile.verify.child REQUEST` (see parent.py).

It always ends with an outcome, whatever the author's code, or ours, does in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from hatch_precompile.backends import is_for_gpus
from hatch_precompile.errors import BuildError, unforeseen
from hatch_precompile.processes import connect_to_parent
from hatch_precompile.verify.hidden_sources import hide_sources
from hatch_precompile.verify.parent import Outcome, Request

__all__ = ["main"]


def main(path: str) -> int:
    connect_to_parent()
    del sys.argv[1:]  # the author's code may look at it
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    outcome = _outcome(request)
    # Where something cannot be written as JSON, as a name of a file that is no UTF-8, that is shown in ASCII.
    try:
        written = msgspec.json.encode(outcome)
    except UnicodeEncodeError:
        written = msgspec.json.encode(Outcome(ascii(outcome.error or outcome.results), []))
    try:
        Path(request.outcome).write_bytes(written)
    except OSError as error:
        sys.stdout.write(f"cannot write a file: {error}\n")
        return 1
    return 0


def _outcome(request: Request) -> Outcome:
    try:
        hide_sources(request.hidden)
        # Whatever torch is, or is not, is found out here.
        if is_for_gpus(request.variant) and request.run:
            from hatch_precompile.verify.on_real_gpu import run
        elif is_for_gpus(request.variant):
            from hatch_precompile.verify.on_standin import run
        else:
            from hatch_precompile.verify.samples import run

        return Outcome("", run(request))
    except BuildError as error:
        return Outcome(str(error), [])
    except BaseException as error:  # SystemExit of the author's code, too; an interrupt ends the parent
        return Outcome(f"its samples cannot be run: {unforeseen(error)}", [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
