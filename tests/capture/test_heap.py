"""The memory of a call's tensors stays with the process: the next call has it without the system's help."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hatch_precompile.inductor import heap
from tests.conftest import REPOSITORY
from tests.support.graphs import save_graph

CALLS = """
import ctypes, resource, sys
import torch
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a fault brings one page, not a huge one
sys.path.insert(0, {repository!r})
from pathlib import Path
from tests.support.graphs import load_graph
torch.set_num_threads(1)
call, x = load_graph(Path({directory!r})), torch.ones({size}, {size})
with torch.no_grad():
    for _ in range(3):
        call(x=x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        call(x=x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""
# Four of these are there at once, more than glibc keeps of what it has seen: two of them.
SIZE = 1024


def three_products(x: torch.Tensor) -> torch.Tensor:
    first = x @ x
    second = first @ x
    return first + second * (second @ first)


@pytest.mark.parametrize("chosen", [False, True])
def test_a_call_finds_the_memory_of_the_one_before(chosen: bool, tmp_path: Path) -> None:
    """Unless whoever runs the process has chosen what glibc keeps."""
    save_graph(tmp_path, three_products, {"x": torch.ones(SIZE, SIZE)})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", CALLS.format(repository=str(REPOSITORY), directory=str(tmp_path), size=SIZE)],
        env=environment | ({"MALLOC_TRIM_THRESHOLD_": str(1 << 17)} if chosen else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    pages = SIZE * SIZE * 4 / resource.getpagesize()
    faults = float(done.stdout)
    # Now and then a small block of somebody's lies in the way of a tensor.
    assert faults > pages if chosen else faults < pages / 4, faults


PROGRAM = """
#include <cstdio>
#include <cstring>
#include <fstream>
#include <unistd.h>
#include <vector>
static double megabytes() {
    long all, here;
    std::ifstream("/proc/self/statm") >> all >> here;
    return here * (sysconf(_SC_PAGESIZE) / 1e6);
}
int main(int, char **arguments) {
    std::vector<void *> blocks(std::atoi(arguments[1]));
    double before = megabytes();
    for (void *&block : blocks) std::memset(block = std::malloc(1000000), 1, 1000000);
    for (; !blocks.empty(); blocks.pop_back()) std::free(blocks.back());
    std::printf("%f", megabytes() - before);
}
"""


@pytest.mark.parametrize(("taken", "least", "most"), [(60, 58, 64), (100, 0, 68)])
def test_up_to_64_mb_are_kept(
    taken: int, least: float, most: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a process that takes one MB after another, and gives them back; for a graph that takes 10 GB."""
    monkeypatch.setattr(heap, "bytes_at_once", lambda: 10 * 10**9)
    (tmp_path / "program.cpp").write_text(heap.with_memory_kept(PROGRAM))
    subprocess.run(["g++", "-o", tmp_path / "program", tmp_path / "program.cpp"], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [tmp_path / "program", str(taken)], env=environment, capture_output=True, text=True, check=True
    )
    assert least <= float(done.stdout) <= most
