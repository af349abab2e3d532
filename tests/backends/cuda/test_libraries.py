"""Graphs compiled for GPUs where there is none: what their libraries are, and need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from elftools.elf.elffile import ELFFile

from hatch_precompile.backends.cuda import BACKEND
from hatch_precompile.backends.cuda.cards import CARDS, variant_of
from tests.backends.cuda.arguments import given, taken
from tests.backends.cuda.compiled import GRAPHS
from tests.conftest import REPOSITORY, made_once

needs_cuda = pytest.mark.skipif(
    torch.version.cuda is None, reason=f"torch {torch.__version__} is built without CUDA"
)

VARIANTS = ("cuda-sm80", "cuda-sm90", "cuda-sm120")


def compile_into(folder: Path, variant: str, *names: str) -> None:
    around = BACKEND.surroundings(BACKEND.variant(variant), folder / "work")
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONHASHSEED": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        **around.environment,
    }
    command = [sys.executable, "-m", "tests.backends.cuda.compiled", variant, str(folder), *names]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", params=VARIANTS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = request.param
    return made_once(tmp_path_factory, f"compiled-for-{name}", lambda place: compile_into(place, name))


def seen(folder: Path) -> dict[str, Any]:
    return msgspec.json.decode((folder / "seen.json").read_bytes())


@needs_cuda
def test_each_graph_is_one_library_with_nothing_of_this_machine(compiled: Path) -> None:
    libraries = sorted(path.name for path in compiled.glob("*.so"))
    (variant,) = seen(compiled)["noise"]["libraries"]
    names = [name.replace(" ", "-") for name in GRAPHS]
    assert libraries == sorted(f"{name}-{variant}.so" for name in [*names, "training-backward"])
    for library in libraries:
        content = (compiled / library).read_bytes()
        assert content.count(b"\x7fELF") > 1, f"{library} has no kernel in it"
        for word in (str(compiled), str(REPOSITORY), "site-packages", "/tmp/"):
            assert word.encode() not in content, f"{library} has {word}"


@needs_cuda
def test_kernels_are_given_what_they_take(compiled: Path) -> None:
    """The driver reads as many bytes as a kernel takes from wherever it is told to, and checks nothing."""
    sources = [path.read_text() for path in (compiled / "inductor").rglob("*.cpp")]
    kernels = [kernel for source in sources for kernel in given(source)]
    assert len(kernels) >= len(GRAPHS)
    for image, sizes in kernels:
        assert taken(image) == sizes, image


@needs_cuda
def test_they_need_torch_and_no_driver(compiled: Path) -> None:
    for library in compiled.glob("*.so"):
        with library.open("rb") as file:
            tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags()
            needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
        brought = {"libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so"}
        of_any_linux = {"libgomp.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6"}
        assert needed <= brought | of_any_linux


_LOAD = """
import sys
from hatch_precompile.runtime import runtime
import torch
for path in sys.argv[1:]:
    runtime("graphs.callers").load_library(path, path, "inductor_entry_cpp")
compilers = [name for name in sys.modules if name.startswith(("triton", "torch._inductor"))]
print(torch.cuda.is_initialized(), compilers)
"""


@needs_cuda
def test_they_load_where_there_is_no_driver(compiled: Path) -> None:
    paths = [str(path) for path in compiled.glob("*.so")]
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, *paths], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "False []"


@needs_cuda
def test_nothing_can_be_read_that_was_not_computed(compiled: Path) -> None:
    for graph, record in seen(compiled).items():
        assert "operation not supported" in record.get("read", ""), graph
    assert "operation not supported" in seen(compiled)["written"]["input"]


@needs_cuda
def test_a_second_build_has_the_same_bytes(compiled: Path, tmp_path: Path) -> None:
    (variant,) = seen(compiled)["noise"]["libraries"]
    compile_into(tmp_path, variant, "attention", "any batch")
    for path in tmp_path.glob("*.so"):
        assert path.read_bytes() == (compiled / path.name).read_bytes()


@needs_cuda
def test_blocks_that_wait_for_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch like any other may never end. A variable of inductor's environment asks for such kernels."""
    from hatch_precompile.backends.cuda import carrier

    kept = {"global_scratch": 0, "triton_meta": {"launch_cooperative_grid": True}}
    monkeypatch.setattr(carrier.CudaKernelParamCache, "get", lambda name: kept)
    with pytest.raises(carrier.NotCarried, match="the blocks of the kernel sums wait for"):
        carrier._Call("call_sums", "sums", {}, []).generate(None)


def test_cards() -> None:
    assert [variant_of(*divmod(card.capability, 10)) for card in CARDS.values()] == [*CARDS]
    assert variant_of(8, 7) == "cuda-sm86"  # what is compiled for 8.6 runs there
    assert variant_of(9, 1) is variant_of(7, 5) is variant_of(10, 3) is None
