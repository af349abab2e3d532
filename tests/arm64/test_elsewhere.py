"""The wheel for 64-bit Arm on another kind of machine: `make test-arm64` names the one that it has built."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Site

WHEEL = Path(os.environ.get("ARM64_WHEEL", ""))
pytestmark = [
    pytest.mark.skipif(not WHEEL.is_file(), reason="ARM64_WHEEL names none: make test-arm64"),
    pytest.mark.skipif(platform.machine() == "aarch64", reason="about another machine than 64-bit Arm"),
]


def test_pip_refuses_it(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", tmp_path, WHEEL]
    refused = subprocess.run(install, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"{WHEEL.name} is not a supported wheel on this platform" in refused.stderr
    assert not any(tmp_path.iterdir())


def test_where_it_is_unpacked_all_runs_eagerly_after_one_warning(tmp_path: Path) -> None:
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(tmp_path)
    called = Site(tmp_path).process("islet_calls.every_call")
    assert called.stderr.count("PrecompileWarning") == 1
    assert "this CPU cannot run it: armv8-a needs asimd" in called.stderr
    assert called.result["variant"] is None
    assert all(called.result["right"].values())
    assert {hits for hits, _ in called.result["served"].values()} == {0}
