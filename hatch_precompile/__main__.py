"""The command `hatch-precompile`, also as `python -m hatch_precompile`."""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> None:
    """Start the command line, or say what it needs: a build environment has the hook alone."""
    try:
        from hatch_precompile.cli import main

        main()
    except ModuleNotFoundError as error:
        if error.name not in ("build", "click", "griffe", "rich", "tomlkit"):
            raise
        sys.exit(
            f"hatch-precompile: the command line needs {error.name}, which is not installed; "
            "run: pip install 'hatch-precompile[cli]'"
        )


if __name__ == "__main__":
    run()
