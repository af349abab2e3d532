"""A command that is ended leaves nothing behind: no process and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_processes import eventually, processes_with

REPOSITORY = Path(__file__).parents[2]
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]

# A package as a wheel has it, as far as the commands need it before they call its model: making the samples
# takes for ever, with a process of the author's own.
SAMPLES = """
import os, subprocess, sys, time
from pathlib import Path

def target(x):
    return x

def samples():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)", "MARK"])
    Path("STARTED").touch()
    time.sleep(90)
"""
RUNTIME = """
def install(): pass
def status(): return {"entrypoints": {}}
"""
MANIFEST = {
    "format": 1,
    "entrypoints": [
        {
            "name": "it",
            "target": "lingering.code:target",
            "mode": "no_grad",
            "activate": "call",
            "on_miss": "eager",
            "recipe": {"samples": "lingering.code:samples"},
        }
    ],
}

# What `build` runs: it stands for a hook whose compiler takes for ever.
BACKEND = """
import subprocess, sys, tempfile, time
from pathlib import Path

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tempfile.mkdtemp(prefix="left-by-the-backend-")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)", "MARK"])
    Path("STARTED").touch()
    time.sleep(90)
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[tool.hatch.build.hooks.precompile]
"""


class Command:
    """A command line that is running, with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.started = folder / "started"
        self.mark = f"mark-of-{folder.name}-{os.getpid()}"

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("MARK", self.mark).replace("STARTED", str(self.started)))

    def end(self, arguments: list[str], number: signal.Signals) -> int:
        """Start it, end it when it is in the midst of it, and say with what status it has ended."""
        code = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{RUN}"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(self.folder / "site")]),
                "TMPDIR": str(self.temporary),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            assert eventually(lambda: self.started.exists() or process.poll() is not None, 120)
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert eventually(lambda: len(processes_with(self.mark)) == 1)
            process.send_signal(number)
            return process.wait(60)
        finally:
            process.kill()


RUN = "from hatch_precompile.cli import main; main(prog_name='hatch-precompile')"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def left_of(command: Command) -> Callable[[], list[object]]:
    return lambda: [*processes_with(command.mark), *command.temporary.iterdir()]


def status_after(number: signal.Signals) -> int:
    return 1 if number == signal.SIGINT else 128 + number


@pytest.mark.parametrize("name", ["bench", "verify"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_that_runs_samples(command: Command, name: str, number: signal.Signals) -> None:
    command.write("site/lingering/__init__.py", "")
    command.write("site/lingering/code.py", SAMPLES)
    command.write("site/lingering/_precompiled/__init__.py", RUNTIME)
    frames = "from contextlib import nullcontext as at_work\n"
    command.write("site/lingering/_precompiled/torch_internals/torch_frames.py", frames)
    command.write("site/lingering/_precompiled/loading/entries.py", "def native_after(calls): pass\n")
    command.write("site/lingering/_precompiled/errors.py", "class PrecompileError(Exception): pass\n")
    command.write("site/lingering/_precompiled/bundle/manifest.json", json.dumps(MANIFEST))
    assert command.end([name, "lingering"], number) == status_after(number)
    assert eventually(lambda: left_of(command)() == [])


@pytest.mark.parametrize("number", SIGNALS)
def test_a_build(command: Command, number: signal.Signals) -> None:
    command.write("project/backend.py", BACKEND)
    command.write("project/pyproject.toml", PYPROJECT)
    assert command.end(["build", "--no-isolation", "project"], number) == status_after(number)
    assert left_of(command)() == []
    assert not (command.folder / "project" / "dist").exists()
