"""docs/recipes.md: its commands typed, its service run as its Dockerfile runs it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TESTS
from tests.support.pages import Page

PAGE = "recipes.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page was run: every command has printed what the page says."""
    work = tmp_path_factory.mktemp("recipes")
    Page.read(PAGE).run(work, ["python3 -m venv .venv", ". .venv/bin/activate"])
    return work / "empty"


def contained(command: list[str]) -> list[str]:
    """A command that may write where the folder says so only, as root too."""
    if os.geteuid() != 0:
        return command
    assert shutil.which("setpriv"), "util-linux has it"
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]


class Service:
    """The command of the Dockerfile in a container's layout: nothing to write to, no home, no compiler."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        (blocks,) = [block for block in Page.read(PAGE).blocks() if block.title == "Dockerfile"]
        (line,) = [line for line in blocks.content.splitlines() if line.startswith("CMD ")]
        command = json.loads(line.removeprefix("CMD "))
        assert command[0] == "python" and command[-1] == "8000"
        self.app = place.parent / "app"
        self.app.mkdir()
        shutil.copy(place / "serve.py", self.app)
        self.app.chmod(0o555)
        self.command = contained([str(place / ".venv/bin/python"), *command[1:-1], self.port])
        self.environment = {
            "PATH": "/nowhere",
            "HATCH_PRECOMPILE": "strict",
            "PYTHONPATH": sysconfig.get_path("purelib"),  # torch and FastAPI
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def __enter__(self) -> Service:
        setpriv = shutil.which(self.command[0]) or self.command[0]
        self.process = subprocess.Popen(
            [setpriv, *self.command[1:]],
            cwd=self.app,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, path: str, value: Any = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def wait(self) -> None:
        for _ in range(600):
            try:
                self.ask("/compiled")
                return
            except OSError:
                assert self.process.poll() is None, self.process.communicate()[1]
                time.sleep(0.1)
        raise AssertionError("it does not answer")


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[Service]:
    with Service(place) as service:
        service.wait()
        yield service


def test_every_request_from_many_threads_is_a_hit(service: Service) -> None:
    def score(count: int) -> list[float]:
        rows = [[number / 10] * 16 for number in range(count)]
        found: list[float] = service.ask("/score", rows)
        return found

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(score, [1, 2, 3, 50, 7, 1, 256, 4] * 5))
    assert [len(answer) for answer in answers] == [1, 2, 3, 50, 7, 1, 256, 4] * 5
    for answer in answers:
        assert answer == pytest.approx(answers[6][: len(answer)], abs=1e-5)
    assert service.ask("/compiled") == {"hits": 40, "misses": 0}


def test_it_could_not_have_written(service: Service) -> None:
    """The test above would prove nothing about a read-only machine if this did not hold."""
    python = service.command[service.command.index("-m") - 1]
    command = contained([python, "-c", "open('written', 'w')"])
    failed = subprocess.run(command, cwd=service.app, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "PermissionError" in failed.stderr


def test_the_entrypoint_for_sentence_transformers_is_the_one_that_make_programs_builds() -> None:
    tables = [block.content for block in Page.read(PAGE).blocks() if block.language == "toml"]
    (table,) = [table for table in tables if table.startswith("[[tool.hatch")]
    (shown,) = tomllib.loads(table)["tool"]["hatch"]["build"]["hooks"]["precompile"]["entrypoints"]
    (built,) = tomllib.loads((TESTS / "programs" / "programs.toml").read_text())["sentences"]
    assert {**shown, "workload": ""} == {**built, "workload": ""}
