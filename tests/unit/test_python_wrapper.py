"""Inductor's Python wrapper, less inductor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hatch_precompile.inductor.python_wrapper import NotPortable, portable_wrapper

HEADER = '''
"""Compile-time notes"""
import torch
from math import inf
from torch._inductor.utils import maybe_profile
from torch._inductor.codegen.memory_planning import _align as align
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels

aten = torch.ops.aten
unused = torch.no.such.thing
async_compile = AsyncCompile()
'''
KERNELS = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], r'''no compiler reads this''')
cpp_fused_mul_1 = async_compile.cpp_pybinding(['float*'], r'''nor this''')
async_compile.wait(globals())
del async_compile
"""
CALL = """
def region(args):
    x, = args
    args.clear()
    cpp_fused_mul_1(x)
    return (x,)

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions
    def call(self, args):
        x, y = args
        args.clear()
        z = torch.empty(2, 2)
        extern_kernels.mm(x, y, out=z)
        return (region([z])[0], aten.sum.default(z), inf)

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns

def get_args():
    return maybe_profile

def benchmark_compiled_module(args):
    return align

if __name__ == "__main__":
    benchmark_compiled_module(get_args())
"""
EXTERN = SimpleNamespace(mm=torch.mm, bias_addmm=lambda *_: None)


def load(source: str, **namespace: Any) -> Any:
    exec(source, namespace)
    return namespace["call"]


def test_what_is_left_needs_torch_kernels_and_nothing_else() -> None:
    source = portable_wrapper(HEADER + KERNELS + CALL, EXTERN)
    assert "inductor" not in source
    assert "async_compile" not in source
    assert "benchmark" not in source
    called = []
    first, second = called.append, lambda x: x.mul_(2)
    x = torch.ones(2, 2)
    inputs = [x, x]
    result = load(source, kernels=[first, second])(inputs)
    assert (inputs, called) == ([], [])
    assert torch.equal(result[0], torch.full((2, 2), 4.0))
    # The kernel that nothing calls is not there, and has a number all the same.
    assert "kernels[1]" in source
    assert "kernels[0]" not in source


# As torch 2.15 looks at what an operator returned.
CHECKED = CALL.replace(
    "        return (region",
    "        assert_tensor_metadata(z, (2, 2), (2, 1), torch.float32, 'library.op')\n        return (region",
)


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ("torch.empty(2, 2)", ""),
        ("torch.empty(2, 2, dtype=torch.float64)", "AssertionError: library.op"),
        ("torch.empty(2, 3)", "AssertionError: expected size 2==2, stride 3==2 at dim=0"),
    ],
)
def test_a_look_at_what_an_operator_returned_is_kept(returned: str, error: str) -> None:
    header = HEADER + "from torch._inductor.runtime.runtime_utils import assert_tensor_metadata\n"
    source = portable_wrapper(
        header + KERNELS + CHECKED.replace("torch.empty(2, 2)", returned), SimpleNamespace(mm=torch.mm)
    ).replace("torch.mm(x, y, out=z)", "None")
    call = load(source, kernels=[print, lambda x: x.zero_()])
    try:
        call([torch.ones(2, 2), torch.ones(2, 2)])
        said = ""
    except AssertionError as failed:
        said = f"AssertionError: {failed}"
    assert said.startswith(error)
    assert bool(said) == bool(error)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("extern_kernels.mm(x, y, out=z)", "extern_kernels.bias_addmm(x, y)", "extern_kernels.bias_addmm"),
        ("aten.sum.default(z)", "torch._inductor.runtime.save(z)", "torch._inductor.runtime.save"),
        ("aten.sum.default(z)", "maybe_profile(z)", "torch._inductor.utils.maybe_profile"),
        ("aten.sum.default(z)", "align(3)", "torch._inductor.codegen.memory_planning.align"),
    ],
)
def test_what_would_be_inductors_is_named(before: str, after: str, name: str) -> None:
    assert before in CALL
    with pytest.raises(NotPortable, match=rf"^{name}$"):
        portable_wrapper(HEADER + KERNELS + CALL.replace(before, after), EXTERN)


@pytest.mark.parametrize("check", ["assert_size_stride", "assert_alignment", "assert_tensor_metadata"])
def test_words_for_an_operation_are_no_need_of_inductor_and_the_same_in_each_build(check: str) -> None:
    words = "torch._inductor.fx_passes.partial(<function fn at 0x7fd150f2e480>, Match(...))"
    call = CALL.replace(
        "        return (region",
        f"        {check}(z, (2, 2), (2, 1), z.dtype, {words!r})\n        return (region",
    )
    assert call != CALL
    source = portable_wrapper(HEADER + KERNELS + call, EXTERN)
    assert repr(words.replace(" at 0x7fd150f2e480", "")) in source
    assert "0x7fd150f2e480" not in source


def test_what_a_graph_gives_to_an_operator_stays_as_it_is() -> None:
    words = "look at 0x1f"
    call = CALL.replace("aten.sum.default(z)", f"torch.ops.mine.say.default(z, {words!r})")
    assert call != CALL
    assert repr(words) in portable_wrapper(HEADER + KERNELS + call, EXTERN)


def test_a_kernel_that_is_not_for_a_cpu_is_named() -> None:
    with pytest.raises(NotPortable, match=r"^async_compile\.triton$"):
        portable_wrapper(HEADER + KERNELS.replace("cpp_pybinding", "triton") + CALL, EXTERN)
