"""A check that fails in a parallel region: an exception after it, not the end of the process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hatch_precompile.inductor.parallel_checks import NotGuarded, guarded

HEADER = """
#include <omp.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#define TORCH_CHECK(cond, ...) if (!(cond)) throw std::runtime_error("index out of bounds: { in a string")
"""
MAIN = """
int main(int, char** argv) {
    omp_set_num_threads(std::atoi(argv[1]));
    int bad = std::atoi(argv[2]);
    static int data[64];
    for (int round = 0; round < 50; ++round) {
        try { kernel(data, bad); std::printf("ok %d\\n", data[0]); }
        catch (std::exception const& e) { std::printf("%s %d\\n", e.what(), data[0]); }
    }
}
"""
# Each as inductor's code generation lays it out; `bad` is an index whose check fails, or -1.
KERNELS = {
    "a loop": """
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(long x0=0; x0<32; x0+=1)
            {
                {
                    TORCH_CHECK(x0 != bad, "index out of bounds: {");
                    data[32 + x0] = 1;
                }
            }
        }
    }
""",
    "collapsed loops, one in a lambda": """
    #pragma omp parallel
    {
        #pragma omp for collapse(2)
        for(long x0=0; x0<4; x0+=1)
        {
            for(long x1=0; x1<8; x1+=1)
            {
                for(long x2=0; x2<2; x2+=1)
                {
                    auto tmp = [&] { TORCH_CHECK(8 * x0 + x1 != bad, "}"); return 1; }();
                    data[32 + 8 * x0 + x1] = tmp;
                }
            }
        }
    }
""",
    "later loops use what is missing": """
    #pragma omp parallel
    {
        {
            #pragma omp for nowait
            for(long x0=0; x0<32; x0+=1)
                TORCH_CHECK(x0 != bad, "");
        }
        {
            #pragma omp for
            for(long x0=0; x0<32; x0+=1)
            {
                TORCH_CHECK(bad < 0, "");
                if (bad >= 0) data[0] = 666;
            }
        }
        #pragma omp single
        {
            if (bad >= 0) data[0] = 666;
        }
    }
    if (bad >= 0) data[0] = 666;
""",
    "what one thread does": """
    #pragma omp parallel
    {
        #pragma omp single
        {
            TORCH_CHECK(bad < 0, "");
        }
        #pragma omp for
        for(long x0=0; x0<32; x0+=1)
            if (bad >= 0) data[0] = 666;
    }
""",
    "a parallel loop": """
    #pragma omp parallel for
    for (long x0 = 0; x0 < 32; x0++) { TORCH_CHECK(x0 != bad, ""); }
    if (bad >= 0) data[0] = 666;
""",
    "vectors by pragma": """
    #pragma omp parallel
    {
        #pragma omp for simd simdlen(8)
        for(long x0=0; x0<32; x0+=1)
        {
            #pragma omp simd simdlen(8)
            for(long x1=0; x1<2; x1+=1)
            {
                TORCH_CHECK(x0 != bad, "");
            }
        }
    }
""",
    "two regions": """
    #pragma omp parallel
    {
        #pragma omp for
        for(long x0=0; x0<32; x0+=1) { data[x0] = 0; }
    }
    #pragma omp parallel
    {
        #pragma omp for
        for(long x0=0; x0<32; x0+=1) { if (x0 == bad) throw std::runtime_error("thrown"); }
    }
""",
    "no parallel region": """
    for(long x0=0; x0<32; x0+=1) { TORCH_CHECK(x0 != bad, ""); }
""",
}


@pytest.mark.parametrize("name", KERNELS)
def test_an_exception_comes_out_and_what_follows_is_left_out(name: str, tmp_path: Path) -> None:
    source = f'extern "C" void kernel(int* data, int bad)\n{{\n{KERNELS[name]}\n}}\n'
    (tmp_path / "kernel.cpp").write_text(HEADER + guarded(source) + MAIN)
    command = ["g++", "-O2", "-std=c++20", "-fopenmp", "-Wall", "-Werror", "-Wno-unused-variable"]
    subprocess.run([*command, "kernel.cpp", "-o", "kernel"], cwd=tmp_path, check=True, timeout=120)
    for threads in (1, 2, 5):
        for bad in (-1, 0, 17, 31):
            done = subprocess.run(
                [tmp_path / "kernel", str(threads), str(bad)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            said = set(done.stdout.splitlines())
            assert said <= ({"ok 0"} if bad < 0 else {"index out of bounds: { in a string 0", "thrown 0"})
            assert len(said) == 1


def test_without_the_rewriting_the_process_ends(tmp_path: Path) -> None:
    """What the other tests would not notice if OpenMP let exceptions out by itself."""
    (tmp_path / "kernel.cpp").write_text(
        HEADER + f'extern "C" void kernel(int* data, int bad) {{{KERNELS["a loop"]}}}' + MAIN
    )
    subprocess.run(["g++", "-fopenmp", "kernel.cpp", "-o", "kernel"], cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run([tmp_path / "kernel", "1", "3"], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    assert b"terminate called" in done.stderr


def test_a_kernel_without_checks_is_left_alone() -> None:
    source = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* out_ptr0)
{
    #pragma omp parallel
    {
        #pragma omp for
        for(long x0=0; x0<32; x0+=1) { out_ptr0[x0] = std::fmod(2.0, x0); } // TORCH_CHECK("in a comment")
    }
    TORCH_CHECK(out_ptr0[0] > 0, "outside of it");
}
"""
    assert guarded(source) == source


def test_divisions_are_not_noted_where_other_threads_note_theirs() -> None:
    source = """
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        #pragma omp for
        for(long x0=0; x0<32; x0+=1) { out_ptr0[x0] = remainder_integral(x0, x0); }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
"""
    result = guarded(source)
    assert "inductor_cpu" not in result
    assert "catch (...)" in result


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("TORCH_CHECK(true); \n#pragma omp for\nfor(;;) {}", "by every thread"),
        ("#pragma omp for\nfor(;;) {}\n TORCH_CHECK(true);", "by every thread"),
        ("#pragma omp for\nfor(int i = floor_divide_integral(1, 0);;) {}", "for the bounds"),
        ("#pragma omp for\nfor(;;) {\n#pragma omp critical\n{ throw 1; } }", "'#pragma omp critical'"),
        ("#pragma omp for\nfor(;;) {\n#pragma omp parallel\n{ throw 1; } }", "in another"),
        ("#pragma omp sections\n{ throw 1; }", "by every thread"),
        ("#pragma omp for collapse(2)\nfor(;;) { int i; for(;;) { throw 1; } }", "a way that is not known"),
    ],
)
def test_what_cannot_be_guarded_is_said(body: str, reason: str) -> None:
    with pytest.raises(NotGuarded, match=reason):
        guarded(f"void kernel() {{\n#pragma omp parallel\n{{\n{body}\n}}\n}}")
