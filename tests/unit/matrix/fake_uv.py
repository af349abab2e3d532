"""Stands for uv: makes an environment whose Python is the one that runs the tests, and says it is another."""

import re
import sys
from pathlib import Path

WITHOUT = Path(__file__).with_name("without")  # a version of Python that this machine lacks


def main(arguments):
    with Path(__file__).with_name("uv.log").open("a") as log:
        log.write(" ".join(arguments) + "\n")
    if arguments[0] == "venv":
        asked = arguments[arguments.index("--python") + 1]
        version = (re.findall(r"3\.[0-9]+$", asked) or ["{}.{}".format(*sys.version_info)])[0]
        if WITHOUT.exists() and WITHOUT.read_text() == version:
            sys.exit(f"error: No interpreter found for Python {version}")
        python = Path(arguments[-1], "bin", "python")
        python.parent.mkdir(parents=True)
        python.write_text(
            f'#!/bin/sh\nexport FAKE_PYTHON={version} FAKE_ARGUMENTS="$*"\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
    elif "torch==2.15.99" in arguments:
        sys.exit("error: there is no version of torch==2.15.99")


main(sys.argv[1:])
