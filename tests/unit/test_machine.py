"""What a build says of its machine before it starts: one sentence, with the version and what to do."""

from __future__ import annotations

import dis
import importlib.metadata
import os
import re
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hatch_precompile import machine
from hatch_precompile.errors import BuildError
from hatch_precompile.machine import require_known_torch, require_machine
from hatch_precompile.runtime import runtime
from hatch_precompile.torch_versions import KNOWN_TORCH
from tests.conftest import REPOSITORY

KNOWN = runtime("calling.prologue").KNOWN
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def refused() -> str:
    with pytest.raises(BuildError) as told:
        require_machine()
    return str(told.value)


def test_this_machine_will_do() -> None:
    require_machine()


@pytest.mark.parametrize("version", [(3, 10), (3, 15), (4, 0)])
def test_a_python_that_is_not_known(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(version_info=version, implementation=sys.implementation)
    monkeypatch.setattr(machine, "sys", here)
    assert refused() == (
        f"Python {version[0]}.{version[1]} is not known to this hatch-precompile, whose wheels are bytecode "
        "of one Python; build with Python 3.11 to 3.14, or upgrade hatch-precompile"
    )


def test_a_python_without_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED" or asked(name))
    assert refused() == (
        f"this Python {HERE} is a free-threaded build ({HERE}t), for which no wheel is made; "
        f"build with the Python {HERE} that has the GIL"
    )


def test_another_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert refused() == "this is pypy, and wheels are built with CPython 3.11 to 3.14 only"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.10.1", 'torch 2.10.1 is older than 2.11, .*; require a newer one in .* as in "torch==2.11.0"'),
        ("1.13.1+cpu", "torch 1.13.1+cpu is older than 2.11, "),
        ("2.16.0", 'torch 2.16.0 is newer than 2.15, .*; upgrade hatch-precompile, or .* "torch==2.15.0"'),
        ("2.16.0.dev20261101+cu130", "torch 2.16.0.dev20261101+cu130 is newer than 2.15, "),
        ("3.0.0", "torch 3.0.0 is newer than 2.15, "),
    ],
)
def test_a_torch_that_is_not_known(version: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "torch" else found(name)
    )
    assert re.match(words.replace("+", r"\+"), refused())


@pytest.mark.parametrize(
    "version", ["2.11.0+cu130", "2.12.1", "2.13.0", "2.13.0a0+git1", "2.14.1+cpu", "2.15.0rc1", "2.15.9"]
)
def test_a_torch_that_is_known(version: str) -> None:
    require_known_torch(version)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "none")
    assert refused() == (
        "the C++ compiler 'none' was not found; install g++ or set CXX (only the build needs one, the wheel "
        "does not): the package is g++ on Debian and Ubuntu, gcc-c++ on Fedora, gxx of conda"
    )


def test_no_strip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert refused() == "strip was not found; it is in the package binutils of Debian, Fedora and conda"


def test_no_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme="": os.fspath(tmp_path / scheme))
    header = tmp_path / sysconfig.get_default_scheme() / "Python.h"
    assert refused() == (
        f"the headers of Python were not found (there is no {header}); "
        "install them (only the build needs them, the wheel does not): "
        f"the package is python{HERE}-dev on Debian and Ubuntu, python{HERE}-devel on Fedora, python of conda"
    )


def test_the_versions_that_are_known_are_those_that_are_declared() -> None:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    declared = [each.rpartition(" ")[2] for each in project["classifiers"] if ":: Python :: 3." in each]
    known = [f"{major}.{minor}" for major, minor in KNOWN]
    assert declared == known
    assert project["requires-python"] == f">={known[0]}"


def test_the_versions_that_are_known_are_in_order() -> None:
    assert list(KNOWN) == sorted(KNOWN)
    assert list(KNOWN_TORCH) == sorted(KNOWN_TORCH, key=lambda version: version.split("."))


def test_each_python_has_a_word_for_everything() -> None:
    assert {frozenset(words) for words in KNOWN.values()} == {frozenset(KNOWN[3, 11])}


def test_the_words_of_this_python_are_instructions_of_it() -> None:
    words = {word for word in KNOWN[sys.version_info[:2]].values() if isinstance(word, str)}
    assert words <= dis.opmap.keys()
