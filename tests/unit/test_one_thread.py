"""A parallel region for one thread has no team of OpenMP's; any other is as the compiler has it."""

from __future__ import annotations

import ctypes
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

KERNEL = """
#include <cstdint>
extern "C" int64_t kernel(int64_t *numbers, int64_t count, int threads) {
    int64_t level = -1;
    #pragma omp parallel num_threads(threads) if (count >= 512)
    {
        #pragma omp single
        level = omp_get_level();
        #pragma omp for
        for (int64_t i = 0; i < count; i++) numbers[i] += i * omp_get_num_threads();
    }
    return level;
}
extern "C" int64_t inside(int64_t *numbers, int64_t count) {
    int64_t levels = 0;
    #pragma omp parallel num_threads(2) reduction(+ : levels)
    levels += kernel(numbers + omp_get_thread_num() * count, count, 1);
    return levels;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("one-thread")
    header = files("hatch_precompile.inductor").joinpath("one_thread.h").read_text()
    source, built = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(header + KERNEL)
    subprocess.run(
        ["c++", "-Wall", "-Werror", "-O2", "-fPIC", "-shared", "-fopenmp", source, "-o", built], check=True
    )
    found = ctypes.CDLL(str(built))
    found.kernel.restype = found.inside.restype = ctypes.c_int64
    found.kernel.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    found.inside.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return found


@pytest.mark.parametrize(
    ("count", "threads", "level", "shared_by"), [(8, 2, 0, 1), (600, 1, 0, 1), (600, 2, 1, 2)]
)
def test_a_region_has_a_team_where_it_has_threads(
    library: ctypes.CDLL, count: int, threads: int, level: int, shared_by: int
) -> None:
    numbers = (ctypes.c_int64 * count)()
    assert library.kernel(numbers, count, threads) == level
    assert list(numbers) == [place * shared_by for place in range(count)]


def test_in_a_region_of_somebodys_nothing_is_shared_out_among_their_threads(library: ctypes.CDLL) -> None:
    numbers = (ctypes.c_int64 * 16)()
    assert library.inside(numbers, 8) == 4, "each of two threads has a team of its own, below theirs"
    assert list(numbers) == [*range(8), *range(8)]


def test_no_other_library_finds_it(library: ctypes.CDLL) -> None:
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", Path(library._name)], text=True)
    assert "kernel" in symbols and "GOMP_parallel" not in symbols
