"""The capturing process: `python -m hatch_precompile.capture.child REQUEST`.

A process of its own, because tracing changes torch for good and the build must survive a crash.
REQUEST is a JSON file (see `Request`); the capture goes to the directory it names. What it does it sends as
events; the exit code is 3 with the reason in error.txt where the author can do something.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path

import msgspec

from hatch_precompile.backends import backends_of, variants_for_this_machine
from hatch_precompile.capture.parent import FAILED, Request
from hatch_precompile.errors import BuildError, unforeseen
from hatch_precompile.events import send
from hatch_precompile.processes import connect_to_parent, leave_reason
from hatch_precompile.records import CAPTURE

__all__ = ["main"]


def main(path: str) -> int:
    connect_to_parent()
    del sys.argv[1:]  # the author's code may look at it
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    directory = Path(request.directory)
    for name in request.variants:
        for each in backends_of(name):
            each.settle()
    try:
        from hatch_precompile.torch_versions import require_torch_names

        require_torch_names()  # before the imports that need them
        import hatch_precompile.capture.preloaded  # noqa: F401 - also where nothing was
        from hatch_precompile.capture.run_samples import capture

        variants = [
            dataclasses.replace(each, tuned=request.tuned.get(each.name, {}))
            for each in variants_for_this_machine(request.variants)
        ]
        captured = capture(request, variants, send)
        (directory / CAPTURE).write_bytes(msgspec.json.encode(captured))
    except BuildError as error:
        leave_reason(directory / "error.txt", str(error))
        return FAILED
    except SystemExit as error:
        from hatch_precompile.entrypoints.advice import own_line

        place = own_line(error)
        told = (
            f"the author's code ended the process: sys.exit({error.code!r}){f', at {place}' if place else ''}"
        )
        leave_reason(directory / "error.txt", told)
        return FAILED
    except OSError as error:
        leave_reason(directory / "error.txt", f"cannot read or write a file: {error}")
        return FAILED
    except Exception as error:
        if request.traceback:
            traceback.print_exc()
        leave_reason(directory / "error.txt", f"it cannot be captured: {unforeseen(error)}")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
