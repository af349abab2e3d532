"""Which library multiplies matrices: decided for the processor that a wheel runs on.

Torch carries two, MKL and oneDNN, and float32 goes to MKL (`addmm`, `mm`). That one leaves out the widest
vectors of processors that are not Intel's, and splits a few rows badly there: 90 % of oneDNN's speed on AMD's
Zen 4, half of it where AVX-512 is twice as fast as AVX2. On Zen 3, which has no AVX-512, it is MKL that is
faster, by 10 % in one thread. So a linear layer becomes a call of a function that is compiled into the
library of its graph, and that one asks the processor. Small layers stay as they are: what oneDNN needs to set
up a call is more than it could save.
Seen in torch 2.13.0 (torch/_inductor/kernel/mm.py, torch/csrc/inductor/aoti_torch/c/shim_cpu.h).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hatch_precompile.inductor.extern_kernels import (
    OTHERWISE,
    call_of,
    has_known_sizes,
    is_number,
    is_transposed,
)

__all__ = ["linear_layers_by_processor"]

# Multiplications, m x n x k, from which oneDNN's set-up of some microseconds does not count. On Zen 4, where
# MKL does best among AMD's, 32 x 384 x 384 was as fast in both, and less was faster in MKL.
_WORTH_IT = 1 << 22

# As torch's own C functions: handles in, the handle of a new tensor out, an error code returned.
# input: (m, k); weight: (n, k) or, as it is multiplied, (k, n); bias: (n) or null. All are contiguous and
# float32.
_FUNCTION = """
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
namespace {
#ifndef PRECOMPILED_MKL_IS_FAST
#define PRECOMPILED_MKL_IS_FAST \\
    (__builtin_cpu_init(), __builtin_cpu_is("intel") || !__builtin_cpu_supports("avx512f"))
#endif
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_linear(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t as_multiplied,
        AtenTensorHandle* result) {
    static const bool mkl_is_fast = PRECOMPILED_MKL_IS_FAST;
    int64_t *rows, *sizes;
    if (auto error = aoti_torch_get_sizes(input, &rows)) return error;
    if (auto error = aoti_torch_get_sizes(weight, &sizes)) return error;
    const int64_t m = rows[0], n = sizes[as_multiplied], k = sizes[!as_multiplied];
    const bool for_onednn = mkl_is_fast == precompiled_otherwise && m >= WORTH_IT / (n * k);
    AtenTensorHandle made, transposed = weight;
    RAIIAtenTensorHandle transposed_owner;
    if (for_onednn == as_multiplied) {
        const int64_t transposed_sizes[] = {sizes[1], sizes[0]}, transposed_strides[] = {1, sizes[1]};
        // The offset is what is added to that of the weight, which may be a part of another tensor.
        if (auto error = aoti_torch__reinterpret_tensor(
                weight, 2, transposed_sizes, transposed_strides, 0, &transposed)) return error;
        transposed_owner = RAIIAtenTensorHandle(transposed);
    }
    if (for_onednn) {
        const double* no_numbers[] = {nullptr};
        const char* no_word = "";
        return aoti_torch_cpu__linear_pointwise(
            input, transposed, bias ? &bias : nullptr, "none", no_numbers, 0, &no_word, result);
    }
    const int64_t result_sizes[] = {m, n}, result_strides[] = {n, 1};
    const int32_t dtype = aoti_torch_dtype_float32(), device = aoti_torch_device_type_cpu();
    if (auto error = aoti_torch_empty_strided(2, result_sizes, result_strides, dtype, device, 0, &made))
        return error;
    RAIIAtenTensorHandle owner(made);
    if (auto error = bias ? aoti_torch_cpu_addmm_out(made, bias, input, transposed, 1.0, 1.0)
                          : aoti_torch_cpu_mm_out(made, input, transposed))
        return error;
    *result = owner.release();
    return AOTI_TORCH_SUCCESS;
}
}
""".replace("WORTH_IT", str(_WORTH_IT))


@contextlib.contextmanager
def linear_layers_by_processor() -> Iterator[None]:
    """Have linear layers that are lowered while the block runs choose their library where they run."""
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    if not torch.backends.mkldnn.is_available():
        yield
        return
    fused = torch.ops.mkldnn._linear_pointwise
    before = {
        target: lowerings[target]
        for target in (aten.addmm.default, aten.mm.default, fused.default, fused.binary)
    }
    lowerings[aten.addmm.default] = _addmm(before[aten.addmm.default])
    lowerings[aten.mm.default] = _mm(before[aten.mm.default])
    lowerings[fused.default], lowerings[fused.binary] = _packed, _packed_with_another
    try:
        yield
    finally:
        lowerings.update(before)


def _packed(x: Any, w: Any, bias: Any, attr: str, scalars: Any, algorithm: Any) -> Any:
    """Of weights that were packed (packing.py). Inductor's own takes constants of the graph only."""
    from torch._inductor import ir, mkldnn_ir

    return ir.TensorBox.create(mkldnn_ir.LinearUnary.create(x, w, bias, attr, scalars, algorithm))


def _packed_with_another(x: Any, other: Any, w: Any, bias: Any, attr: str) -> Any:
    from torch._inductor import ir, mkldnn_ir

    return ir.TensorBox.create(mkldnn_ir.LinearBinary.create(x, other, w, bias, attr))


def _addmm(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def lower(bias: Any, x: Any, w: Any, **kwargs: Any) -> Any:
        whole = bias.get_size() == [w.get_size()[1]] and bias.get_dtype() == torch.float32
        if kwargs or not whole or not _fits(x, w):
            return otherwise(bias, x, w, **kwargs)
        return _linear(x, w, bias)

    return lower


def _mm(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def lower(x: Any, w: Any, **kwargs: Any) -> Any:
        return _linear(x, w, None) if not kwargs and _fits(x, w) else otherwise(x, w, **kwargs)

    return lower


def _fits(x: Any, w: Any) -> bool:
    """Whether it is a layer for the function: float32, known sizes of a weight, and neither that nor the
    input need be copied for it."""
    from torch._inductor import config
    from torch._inductor.virtualized import V

    if not V.graph.cpp_wrapper or config.max_autotune or config.max_autotune_gemm:
        return False
    if any(each.get_dtype() != torch.float32 or each.get_device().type != "cpu" for each in (x, w)):
        return False
    (m, _), (k, n) = x.get_size(), w.get_size()
    if not has_known_sizes(w) or (is_number(m) and m * n * k < _WORTH_IT):
        return False
    return _is_contiguous(x) and (is_transposed(w) or _is_contiguous(w))


def _is_contiguous(x: Any) -> bool:
    """Whether a tensor lies so in memory, or will where it is not there yet."""
    from torch._inductor import ir

    if not ir.is_storage_and_layout(x):
        return True
    _, layout = ir.as_storage_and_layout(x, freeze=False)
    return not isinstance(layout, ir.FixedLayout) or layout.is_contiguous()


def _linear(x: Any, w: Any, bias: Any) -> Any:
    from torch._inductor.lowering import permute

    transposed = is_transposed(w)
    weight = permute(w, [1, 0]) if transposed else w
    given = [x, weight] if bias is None else [x, weight, bias]
    constants = (int(not transposed),) if bias is not None else (None, int(not transposed))
    columns = w.get_size()[1]
    name = "aoti_torch_cpu_precompiled_linear"
    return call_of(OTHERWISE + _FUNCTION, name, given, constants, columns, torch.float32)
