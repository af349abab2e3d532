"""docs/tutorial.md, word for word, from an empty directory: its files are written, its commands typed into
one shell, and what they print is compared with what the page says.

Some things are not as for a reader, who would fetch a gigabyte for them:

- pip has no index. Everything but this project comes from the environment the tests run in, which the shell
  sees through PYTHONPATH, so that pip finds the requirements satisfied.
- The plugin is this checkout's wheel, installed where that path leads first.
- `python -m build` gets `--no-isolation`, so that it does not install them all again.
- The plugin's command is started through the Python of the tutorial's environment, because pip writes no
  script for what was there already.
- Python's and torch's versions are those of the environment the tests run in.
"""

from __future__ import annotations

import doctest
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "tutorial.md"
MARK = "::said::"


@dataclass(frozen=True)
class Block:
    """A fenced block: a file's content, or commands with what they print."""

    language: str
    title: str
    content: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    return [Block(*each) for each in found]


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command, and what the page says it prints."""
    return [
        (each[0], each[1])
        for each in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.content, re.MULTILINE)
    ]


def install_plugin(work: Path) -> Path:
    """This checkout's own wheel, where it can be imported from, with its entry points and its command."""
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        work / "wheel",
        REPOSITORY,
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (work / "wheel").glob("*.whl")
    into = ["--no-deps", "--no-index", "--target", work / "plugin"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *into, wheel], check=True)
    return work / "plugin"


def text() -> str:
    """The page, with the versions there are."""
    torch = Version(importlib.metadata.version("torch")).public
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return PAGE.read_text("utf-8").replace("torch==2.13.0", f"torch=={torch}").replace("cp311", python)


def script(page: str) -> str:
    """The whole page as one program for the shell. What each command prints ends with a line of ours."""
    lines = [
        "set -e",
        # The third and the fourth of the substitutions.
        'python() { if [ "$1 $2" = "-m build" ]; then shift 2; set -- -m build --no-isolation "$@"; fi',
        '    command python "$@"; }',
        'hatch-precompile() { command python -c "from hatch_precompile.cli import main; main()" "$@"; }',
    ]
    for block in blocks(page):
        if block.language == "console":
            for command, _ in commands(block):
                lines += [command, f"echo {MARK}"]
        else:
            lines += [
                f"mkdir -p {Path(block.title).parent}",
                f"cat > {block.title} <<'END'",
                block.content + "END",
            ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each command of the page printed."""
    work = tmp_path_factory.mktemp("tutorial")
    plugin = install_plugin(work)
    (work / "empty").mkdir()
    (work / "home").mkdir()
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(work / "home"),
        "PYTHONPATH": os.pathsep.join([str(plugin), sysconfig.get_path("purelib")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # what is printed and what is logged come in their order, as in a terminal
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    finished = subprocess.run(
        ["bash"],
        input=script(text()),
        cwd=work / "empty",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout.split(f"{MARK}\n")[:-1]


def test_every_command_prints_what_the_page_says(said: list[str]) -> None:
    page = [each for block in blocks(text()) for each in commands(block)]
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert len(said) == len(page) > 5
    for (command, expected), printed in zip(page, said, strict=True):
        assert checker.check_output(expected, printed, flags), f"$ {command}\n{printed}"


def test_the_page_is_read_as_it_is_written() -> None:
    read = blocks(PAGE.read_text("utf-8"))
    files = [block.title for block in read if block.language != "console"]
    assert files[0] == files[3] == "pyproject.toml"
    assert "src/moods/samples.py" in files and "ask.py" in files and all(files)
    assert PAGE.read_text("utf-8").count("```") == 2 * len(read)


def test_a_command_that_prints_something_else_is_noticed() -> None:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    ((command, expected),) = commands(Block("console", "", "$ ls dist\nmoods-....whl\n"))
    assert command == "ls dist"
    assert checker.check_output(expected, "moods-1.0.whl\n", flags)
    assert not checker.check_output(expected, "moods-1.0.tar.gz\n", flags)
