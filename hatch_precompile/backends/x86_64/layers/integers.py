"""Products of int8 matrices, for processors that torch has no fast ones for.

`aten._int_mm` goes to oneDNN where the processor has AVX-512 VNNI, and to plain loops elsewhere: a layer of
int8 is twenty times slower there than one of float32. So the library of its graph gets a function that asks
the processor where it runs, and multiplies by itself where torch would do so badly: eight-bit numbers widened
to sixteen bits, pairs of products summed in 32 bits, which is exact. It reads weights as a layer has them, so
that they need not be packed.
Seen in torch 2.13.0 (aten/src/ATen/native/LinearAlgebra.cpp, torch/_inductor/kernel/mm.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.inductor.extern_kernels import (
    OTHERWISE,
    call_of,
    has_known_sizes,
    is_transposed,
)

__all__ = ["int8_products_by_processor"]

# As torch's own C functions. input: (m, k) of int8 or uint8; weight: (n, k) of int8; both contiguous.
_FUNCTION = """
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <cstring>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
#ifndef PRECOMPILED_INT8_IS_FAST
#define PRECOMPILED_INT8_IS_FAST (__builtin_cpu_init(), __builtin_cpu_supports("avx512vnni"))
#endif
namespace {
namespace integers {
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
// Rows whose sums are in registers together, each with two columns; what one thread does at a time.
constexpr int64_t ROWS = 6, ROWS_AT_ONCE = 8 * ROWS, COLUMNS_AT_ONCE = 32;
// Bytes of weights between what is multiplied and what is asked for.
constexpr int64_t AHEAD = 3072;
// Multiplications from which a thread more makes up for starting it.
constexpr int64_t SHARE = 1 << 18;
// Multiplications that are soon done in any way.
constexpr int64_t LITTLE = 1 << 26;
#ifdef __AVX512BW__
constexpr int64_t STEP = 32;
struct Numbers {
    __m512i all;
    IN_PLACE static Numbers of(const int16_t* from) { return {_mm512_loadu_si512(from)}; }
    IN_PLACE static Numbers of(const int8_t* from) {
        return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
    }
    IN_PLACE static Numbers of(const uint8_t* from) {
        return {_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
    }
    IN_PLACE void store(int16_t* to) const { _mm512_storeu_si512(to, all); }
    IN_PLACE Numbers times(Numbers other) const { return {_mm512_madd_epi16(all, other.all)}; }
    IN_PLACE Numbers plus(Numbers other) const { return {_mm512_add_epi32(all, other.all)}; }
    IN_PLACE __m256i halved() const {
        return _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    }
};
#else
constexpr int64_t STEP = 16;
struct Numbers {
    __m256i all;
    IN_PLACE static __m128i half(const void* from) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    }
    IN_PLACE static Numbers of(const int16_t* from) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
    }
    IN_PLACE static Numbers of(const int8_t* from) { return {_mm256_cvtepi8_epi16(half(from))}; }
    IN_PLACE static Numbers of(const uint8_t* from) { return {_mm256_cvtepu8_epi16(half(from))}; }
    IN_PLACE void store(int16_t* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), all); }
    IN_PLACE Numbers times(Numbers other) const { return {_mm256_madd_epi16(all, other.all)}; }
    IN_PLACE Numbers plus(Numbers other) const { return {_mm256_add_epi32(all, other.all)}; }
    IN_PLACE __m256i halved() const { return all; }
};
#endif
// The sum of all numbers of each.
IN_PLACE void sums_of(Numbers left, Numbers right, int32_t* to, bool both) {
    const __m256i one = left.halved(), two = right.halved();
    const __m256i pairs = _mm256_add_epi32(_mm256_unpacklo_epi32(one, two), _mm256_unpackhi_epi32(one, two));
    __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sums = _mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums));
    if (both) _mm_storel_epi64(reinterpret_cast<__m128i*>(to), sums);
    else *to = _mm_cvtsi128_si32(sums);
}
// x: rows of int16, filled up with zeros; one, two: columns of k weights
// Both products of a row: it is loaded once, as loads would be what takes longest.
IN_PLACE void add(Numbers (&sums)[2], Numbers x, Numbers left, Numbers right) {
    asm("" : "+v"(x.all));  // it has to be in a register, or there would be two loads
    sums[0] = sums[0].plus(x.times(left));
    sums[1] = sums[1].plus(x.times(right));
}
template <int... R>
IN_PLACE void block_of(const int16_t* x, int64_t stride, const int8_t* one, const int8_t* two, int64_t k,
                       int32_t* out, int64_t n, bool both, std::integer_sequence<int, R...>) {
    const int64_t whole = k / STEP * STEP;
    Numbers left{}, right{};
    if (whole < k) {
        int8_t ends[2][STEP] = {};
        std::memcpy(ends[0], one + whole, k - whole);
        std::memcpy(ends[1], two + whole, k - whole);
        left = Numbers::of(ends[0]);
        right = Numbers::of(ends[1]);
    }
    Numbers sums[][2] = {{Numbers::of(x + R * stride + whole).times(left),
                          Numbers::of(x + R * stride + whole).times(right)}...};
    for (int64_t i = 0; i < whole; i += STEP) {
        left = Numbers::of(one + i);
        right = Numbers::of(two + i);
        _mm_prefetch(reinterpret_cast<const char*>(one + i + AHEAD), _MM_HINT_T0);
        (add(sums[R], Numbers::of(x + R * stride + i), left, right), ...);
    }
    (sums_of(sums[R][0], sums[R][1], out + R * n, both), ...);
}
template <int Rows>
void block(const int16_t* x, int64_t stride, const int8_t* one, const int8_t* two, int64_t k,
           int32_t* out, int64_t n, bool both) {
    block_of(x, stride, one, two, k, out, n, both, std::make_integer_sequence<int, Rows>());
}
template <int... R>
auto block_with(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&block<1>) blocks[] = {block<R + 1>...};
    return blocks[rows - 1];
}
template <class Item>
void widen(const Item* x, int64_t k, int16_t* to) {
    const int64_t whole = k / STEP * STEP;
    for (int64_t i = 0; i < whole; i += STEP) Numbers::of(x + i).store(to + i);
    Item end[STEP] = {};
    std::memcpy(end, x + whole, k - whole);
    Numbers::of(end).store(to + whole);
}
template <class Item>
void product(const Item* x, int64_t m, int64_t k, const int8_t* w, int64_t n, int16_t* wide, int32_t* out) {
    const int64_t stride = (k / STEP + 1) * STEP;
    const int64_t row_parts = (m + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int64_t column_parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    const bool share = m * n * k / omp_get_max_threads() >= SHARE;
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t r = 0; r < m; ++r) widen(x + r * k, k, wide + r * stride);
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t part = 0; part < row_parts * column_parts; ++part) {
        const int64_t first_row = part / column_parts * ROWS_AT_ONCE;
        const int64_t first_column = part % column_parts * COLUMNS_AT_ONCE;
        const int64_t rows = std::min(ROWS_AT_ONCE, m - first_row);
        const int64_t columns = std::min(COLUMNS_AT_ONCE, n - first_column);
        const int64_t blocks = (rows + ROWS - 1) / ROWS;
        for (int64_t number = 0; number < blocks; ++number) {
            const int64_t begin = first_row + rows * number / blocks;
            const int64_t end = first_row + rows * (number + 1) / blocks;
            auto block = block_with(end - begin, std::make_integer_sequence<int, ROWS>());
            for (int64_t c = first_column; c < first_column + columns; c += 2) {
                const bool both = c + 1 < n;
                const int8_t *one = w + c * k, *two = both ? one + k : one;
                block(wide + begin * stride, stride, one, two, k, out + begin * n + c, n, both);
            }
        }
    }
}
}
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_int_mm(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* result) {
    static const bool torch_is_fast = PRECOMPILED_INT8_IS_FAST;
    const int32_t device = aoti_torch_device_type_cpu();
    int64_t *rows, *sizes;
    int32_t dtype;
    if (auto error = aoti_torch_get_sizes(input, &rows)) return error;
    if (auto error = aoti_torch_get_sizes(weight, &sizes)) return error;
    if (auto error = aoti_torch_get_dtype(input, &dtype)) return error;
    const int64_t m = rows[0], n = sizes[0], k = sizes[1];
    const int64_t result_sizes[] = {m, n}, result_strides[] = {n, 1};
    AtenTensorHandle made;
    if (auto error = aoti_torch_empty_strided(
            2, result_sizes, result_strides, aoti_torch_dtype_int32(), device, 0, &made)) return error;
    RAIIAtenTensorHandle owner(made);
    // Where torch's is slow it takes minutes for large ones: those are not asked for.
    if (precompiled_otherwise ? !torch_is_fast && m * n * k <= integers::LITTLE : torch_is_fast) {
        const int64_t transposed_sizes[] = {k, n}, transposed_strides[] = {1, k};
        AtenTensorHandle transposed;
        // The offset is what is added to that of the weight, which may be a part of another tensor.
        if (auto error = aoti_torch__reinterpret_tensor(
                weight, 2, transposed_sizes, transposed_strides, 0, &transposed)) return error;
        RAIIAtenTensorHandle transposed_owner(transposed);
        if (auto error = aoti_torch_cpu__int_mm_out(made, input, transposed)) return error;
        *result = owner.release();
        return AOTI_TORCH_SUCCESS;
    }
    const int64_t wide_sizes[] = {m * (k / integers::STEP + 1) * integers::STEP}, wide_strides[] = {1};
    AtenTensorHandle wide_handle;
    void *x, *w, *wide, *out;
    if (auto error = aoti_torch_empty_strided(
            1, wide_sizes, wide_strides, aoti_torch_dtype_int16(), device, 0, &wide_handle)) return error;
    RAIIAtenTensorHandle wide_owner(wide_handle);
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = aoti_torch_get_data_ptr(wide_owner, &wide)) return error;
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    const auto* weights = static_cast<const int8_t*>(w);
    auto *between = static_cast<int16_t*>(wide);
    auto *sums = static_cast<int32_t*>(out);
    if (dtype == aoti_torch_dtype_int8())
        integers::product(static_cast<const int8_t*>(x), m, k, weights, n, between, sums);
    else
        integers::product(static_cast<const uint8_t*>(x), m, k, weights, n, between, sums);
    *result = owner.release();
    return AOTI_TORCH_SUCCESS;
}
}
"""


@contextlib.contextmanager
def int8_products_by_processor(cpu: Instructions) -> Iterator[None]:
    """Have products of int8 matrices that are lowered while the block runs choose what multiplies them where
    they run. cpu: what each processor that runs them has."""
    from torch._inductor.lowering import lowerings

    target = torch.ops.aten._int_mm.default
    before = lowerings[target]
    if not cpu.has_avx2 or cpu.has_vnni:
        yield
        return
    lowerings[target] = _int_mm(before)
    try:
        yield
    finally:
        lowerings[target] = before


def _int_mm(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def lower(x: Any, w: Any, **kwargs: Any) -> Any:
        return otherwise(x, w, **kwargs) if kwargs or not _fits(x, w) else _product(x, w)

    return lower


def _fits(x: Any, w: Any) -> bool:
    """Whether it is a layer for the function: known sizes of a weight that lies as a layer has it."""
    from torch._inductor.virtualized import V

    if not V.graph.cpp_wrapper or any(each.get_device().type != "cpu" for each in (x, w)):
        return False
    if x.get_dtype() not in (torch.int8, torch.uint8) or w.get_dtype() != torch.int8:
        return False
    return has_known_sizes(w) and is_transposed(w)


def _product(x: Any, w: Any) -> Any:
    from torch._inductor.lowering import permute

    name = "aoti_torch_cpu_precompiled_int_mm"
    return call_of(OTHERWISE + _FUNCTION, name, [x, permute(w, [1, 0])], (), w.get_size()[1], torch.int32)
