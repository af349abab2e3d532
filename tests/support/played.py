"""A scenario in a child of hatch_precompile.processes, which starts with modules imported: `play`, below.

Run as a module, it is that child: its argument is what to play.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from hatch_precompile.processes import connect_to_parent, run_module, tell

__all__ = ["MODULE", "play"]

MODULE = "played"
SUPPORT = Path(__file__).parent


def play(
    directory: Path, scenario: str, *, environment: dict[str, str], timeout: float, **arguments: Any
) -> Any:
    """What `Site.play` answers with these arguments; timeout: how long it may be silent, in seconds."""
    answers: list[str] = []
    finished = run_module(
        MODULE,
        [json.dumps([scenario, arguments])],
        paths=[directory, SUPPORT, SUPPORT.parent / "scenarios"],
        environment={"PATH": str(SUPPORT / "no-such-directory"), **environment},
        inherit=False,
        quiet_limit=timeout,
        on_line=lambda line: None,
        on_message=answers.append,
    )
    assert finished.returncode == 0, "\n".join([*finished.tail, finished.ending()])
    return json.loads(answers[-1])


def _main() -> None:
    connect_to_parent()
    scenario, arguments = json.loads(sys.argv[1])
    module, _, function = scenario.rpartition(".")
    tell(json.dumps(getattr(importlib.import_module(module), function)(**arguments)))


if __name__ == "__main__":
    _main()
