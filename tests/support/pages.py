"""Pages of docs/ that are run: their files are written, their commands typed into one shell, and what these
print is compared with what the page says.

Some things are not as for a reader, who would fetch a gigabyte for them:

- pip has no index. Everything but this project comes from the environment the tests run in, which the shell
  sees through PYTHONPATH, so that pip finds the requirements satisfied.
- The plugin is this checkout's wheel, installed where that path leads first.
- `python -m build` gets `--no-isolation`, so that it does not install them all again.
- The plugin's command is started through the Python of the page's environment, because pip writes no script
  for what was there already.
- Python's and torch's versions are those of the environment the tests run in, and the reader's checkout is
  this one.
"""

from __future__ import annotations

import doctest
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
_MARK = "::said::"


@dataclass(frozen=True)
class Block:
    """A fenced block: a file's content, or commands with what they print."""

    language: str
    title: str
    content: str

    def commands(self) -> list[tuple[str, str]]:
        """Each command, and what the page says it prints."""
        found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", self.content, re.MULTILINE)
        return [(each[0], each[1]) for each in found]


@dataclass(frozen=True)
class Page:
    """A page of docs/, or the README, with the versions there are."""

    text: str

    @classmethod
    def read(cls, name: str) -> Page:
        torch = Version(importlib.metadata.version("torch")).public
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        text = (REPOSITORY / "docs" / name).read_text("utf-8")
        text = text.replace("/path/to/hatch-precompile", str(REPOSITORY))
        return cls(text.replace("torch==2.13.0", f"torch=={torch}").replace("cp311", python))

    def blocks(self) -> list[Block]:
        found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', self.text, re.DOTALL | re.MULTILINE)
        return [Block(*each) for each in found]

    def commands(self) -> list[tuple[str, str]]:
        return [each for block in self.blocks() for each in block.commands()]

    def script(self, before: Sequence[str] = ()) -> str:
        """The whole page as one program for the shell. What each command prints ends with a line of ours."""
        lines = [
            "set -e",
            *before,
            # The third and the fourth of the substitutions.
            'python() { if [ "$1 $2" = "-m build" ]; then shift 2; set -- -m build --no-isolation "$@"; fi',
            '    command python "$@"; }',
            'hatch-precompile() { command python -c "from hatch_precompile.cli import main; main()" "$@"; }',
        ]
        for block in self.blocks():
            if block.language == "console":
                for command, _ in block.commands():
                    lines += [command, f"echo {_MARK}"]
            elif block.title:
                lines += [
                    f"mkdir -p {Path(block.title).parent}",
                    f"cat > {block.title} <<'END'",
                    block.content + "END",
                ]
        return "\n".join(lines) + "\n"

    def run(self, work: Path, before: Sequence[str] = ()) -> None:
        """Run it in the folder `work / "empty"`. Fails where a command prints something else.

        before: commands that are not on the page
        """
        said = self._said(work, before)
        checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert len(said) == len(self.commands()) > 4
        for (command, expected), printed in zip(self.commands(), said, strict=True):
            assert checker.check_output(expected, printed, flags), f"$ {command}\n{printed}"

    def _said(self, work: Path, before: Sequence[str]) -> list[str]:
        """What each command printed."""
        plugin = _install_plugin(work)
        (work / "empty").mkdir()
        (work / "home").mkdir()
        finished = subprocess.run(
            ["bash"],
            input=self.script(before).replace("/path/to/plugin", str(work / "wheel")),
            cwd=work / "empty",
            env={
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "HOME": str(work / "home"),
                "PYTHONPATH": os.pathsep.join([str(plugin), sysconfig.get_path("purelib")]),
                "PYTHONDONTWRITEBYTECODE": "1",
                # What is printed and what is logged come in their order, as in a terminal.
                "PYTHONUNBUFFERED": "1",
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_NO_INDEX": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert finished.returncode == 0, finished.stdout
        return finished.stdout.split(f"{_MARK}\n")[:-1]


def _install_plugin(work: Path) -> Path:
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
