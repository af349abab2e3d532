"""What stands in for a GPU, and what keeps it from being built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hatch_precompile.backends.cuda import first_gpu, headers, standin
from hatch_precompile.backends.cuda.cards import CARDS
from hatch_precompile.errors import BuildError
from tests.backends.cuda.test_libraries import needs_cuda
from tests.conftest import REPOSITORY


def without_headers(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    patch.setattr(headers, "find_spec", lambda name: None)
    return folder


def without_compiler(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    patch.setattr(standin, "include_folders", lambda: [folder])
    patch.setenv("CXX", "false")
    return folder


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (without_headers, "headers of CUDA are in the package nvidia-cuda-runtime, which is not installed"),
        (without_compiler, "what stands in for a GPU does not compile: false ended with 1"),
        (lambda patch, folder: folder / "a b", "cannot be preloaded from .*, because of a blank or a colon"),
        (lambda patch, folder: folder / "a:b", "cannot be preloaded from .*, because of a blank or a colon"),
    ],
)
def test_what_stops_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prepare: Callable[[pytest.MonkeyPatch, Path], Path],
    said: str,
) -> None:
    with pytest.raises(BuildError, match=said):
        standin.build(prepare(monkeypatch, tmp_path))


def test_a_process_keeps_it_from_what_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/folder/libcuda.so.1:/other/libtrace.so")
    standin.settle()
    assert os.environ["LD_PRELOAD"] == "/other/libtrace.so"
    monkeypatch.setenv("LD_PRELOAD", "/folder/libcuda.so.1")
    standin.settle()
    assert "LD_PRELOAD" not in os.environ


@needs_cuda
def test_it_is_the_gpu_here_where_it_is_preloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert first_gpu.capability() is None
    environment = standin.environment_with(standin.build(tmp_path), CARDS["cuda-sm89"])
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert first_gpu.capability() == (8, 9)


_SEEN = """
import ctypes, json, torch
from hatch_precompile.backends.cuda import standin

def outcome(function):
    try:
        return function()
    except RuntimeError as error:
        return str(error).splitlines()[0]

x, y = torch.randn(4, 8).cuda(), torch.empty(4, 8, device="cuda:1")
seen = {
    "capability": torch.cuda.get_device_capability(), "count": torch.cuda.device_count(),
    "computed": outcome(lambda: (x + 1).cpu()),
    "filled": outcome(lambda: torch.full((3,), 2.5, device="cuda").tolist()),
    "unwritten": outcome(lambda: y.cpu().sum()), "read": outcome(lambda: torch.equal(x.cpu(), x.cpu())),
    "copied": outcome(lambda: torch.equal(y.copy_(x).cpu(), x.cpu())),
}
standin.make_unknown(x.data_ptr() + 32, 16)  # the first half of the second row
seen["rows"] = [outcome(lambda row=row: x[row].cpu().numel()) for row in range(4)]
seen["copied of it"] = outcome(lambda: y.copy_(x).cpu().sum())
print(json.dumps(seen))
"""


@needs_cuda
def test_it_has_memory_and_computes_nothing(tmp_path: Path) -> None:
    environment = standin.environment_with(standin.build(tmp_path), CARDS["cuda-sm89"])
    done = subprocess.run(
        [sys.executable, "-c", _SEEN],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    refused = "CUDA error: operation not supported"
    assert json.loads(done.stdout) == {
        "capability": [8, 9],
        "count": 2,
        **dict.fromkeys(("computed", "filled", "unwritten", "copied of it"), refused),
        **dict.fromkeys(("read", "copied"), True),
        "rows": [8, refused, 8, 8],
    }
