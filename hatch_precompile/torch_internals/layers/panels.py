"""Layers whose weights are fixed, in panels: multiplied by functions that are compiled into the library.

oneDNN sets up a product at each call, for 20 to 30 microseconds, and torch does not let anybody keep what it
sets up. For a token or a sentence, that is a third of a product's time or more. These functions start at
once, read each weight once, in the order in which it lies in memory, and ask for it before it is needed.
With AVX-512 the two are about equal at 32 rows. Without it, on Zen 3, these are the faster ones for any
number: by 10 to 20 % at 512 rows.
Seen in torch 2.13.0 (torch/_inductor/graph.py: `_inductor_lowering_function`, as patterns have it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hatch_precompile.torch_internals.layers.own_functions import call_of

__all__ = ["COLUMNS", "FEW_ROWS", "STEPS", "in_panels", "int8_layer", "layer", "packed_here"]

aten = torch.ops.aten

FEW_ROWS = 32
"""At that many, the two were about equal on Zen 4; at 64, oneDNN was as fast or faster."""

COLUMNS = 16
"""That one vector of AVX-512 has, or two of AVX2: a panel."""

# Rows are read by words of four bytes: a float32, four uint8, or two int16 that int8 or uint8 were widened
# to, whose products are exact without VNNI. Weights: for each panel, for each word of a row, what each column
# multiplies it with. The rows are copied: so those which are read together do not fall on the same lines of a
# cache, and their places are known when this is compiled. Each sum is taken in one order, whatever the number
# of threads.
_FUNCTIONS = """
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
namespace {
namespace panels {
constexpr int64_t COLUMNS = 16, CHUNK = 256, STRIDE = CHUNK + 16, AHEAD = 64;
// What a thread multiplies with a panel at a time, in parts of as many rows as there are sums in registers.
constexpr int64_t PARTS = 8;
// Words of weights, times rows, from which a thread more makes up for starting it.
constexpr int64_t SHARE = 1 << 17;
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
#ifdef __AVX512BW__
constexpr int64_t ROWS = 16;
struct Floats {
    using Item = float;
    using Word = float;
    static constexpr int64_t ITEMS = 1, WEIGHTS = COLUMNS;
    __m512 all;
    IN_PLACE static Floats weights(const Word* from) { return load(from); }
    IN_PLACE static Floats load(const Word* from) { return {_mm512_loadu_ps(from)}; }
    IN_PLACE void store(Word* to) const { _mm512_storeu_ps(to, all); }
    IN_PLACE Floats plus(Word x, Floats w) const {
        return {_mm512_fmadd_ps(_mm512_set1_ps(x), w.all, all)};
    }
    IN_PLACE Floats operator+(Floats other) const { return {_mm512_add_ps(all, other.all)}; }
};
// Sums of int32. A word of a row is four uint8, one of the weights four int8.
struct Integers {
    using Item = uint8_t;
    using Word = int32_t;
    static constexpr int64_t ITEMS = 4, WEIGHTS = COLUMNS;
    __m512i all;
    IN_PLACE static Integers weights(const Word* from) { return load(from); }
    IN_PLACE static Integers load(const Word* from) { return {_mm512_loadu_si512(from)}; }
    IN_PLACE void store(Word* to) const { _mm512_storeu_si512(to, all); }
    IN_PLACE Integers plus(Word x, Integers w) const {
        __m512i sum = all;
        // As words, because the compiler may not have been told of this instruction.
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32(x)), "v"(w.all));
        return {sum};
    }
    IN_PLACE Integers operator+(Integers other) const { return {_mm512_add_epi32(all, other.all)}; }
};
// Sums of int32. A word of a row is two int16, one of the weights two columns' two int8.
template <class Numbers>
struct Pairs {
    using Item = Numbers;
    using Word = int32_t;
    static constexpr int64_t ITEMS = 2, WEIGHTS = COLUMNS / 2;
    __m512i all;
    IN_PLACE static Pairs weights(const Word* from) {
        return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
    }
    IN_PLACE static Pairs load(const Word* from) { return {_mm512_loadu_si512(from)}; }
    IN_PLACE void store(Word* to) const { _mm512_storeu_si512(to, all); }
    IN_PLACE Pairs plus(Word x, Pairs w) const {
        return {_mm512_add_epi32(all, _mm512_madd_epi16(_mm512_set1_epi32(x), w.all))};
    }
    IN_PLACE Pairs operator+(Pairs other) const { return {_mm512_add_epi32(all, other.all)}; }
};
#else
constexpr int64_t ROWS = 6;
struct Floats {
    using Item = float;
    using Word = float;
    static constexpr int64_t ITEMS = 1, WEIGHTS = COLUMNS;
    __m256 left, right;
    IN_PLACE static Floats weights(const Word* from) { return load(from); }
    IN_PLACE static Floats load(const Word* from) {
        return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
    }
    IN_PLACE void store(Word* to) const {
        _mm256_storeu_ps(to, left);
        _mm256_storeu_ps(to + 8, right);
    }
    IN_PLACE Floats plus(Word x, Floats w) const {
        const __m256 each = _mm256_set1_ps(x);
        return {_mm256_fmadd_ps(each, w.left, left), _mm256_fmadd_ps(each, w.right, right)};
    }
    IN_PLACE Floats operator+(Floats other) const {
        return {_mm256_add_ps(left, other.left), _mm256_add_ps(right, other.right)};
    }
};
// Sums of int32. A word of a row is two int16, one of the weights two columns' two int8.
template <class Numbers>
struct Pairs {
    using Item = Numbers;
    using Word = int32_t;
    static constexpr int64_t ITEMS = 2, WEIGHTS = COLUMNS / 2;
    __m256i left, right;
    IN_PLACE static Pairs weights(const Word* from) {
        const auto* halves = reinterpret_cast<const __m128i*>(from);
        return {_mm256_cvtepi8_epi16(_mm_loadu_si128(halves)),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(halves + 1))};
    }
    IN_PLACE static Pairs load(const Word* from) {
        const auto* halves = reinterpret_cast<const __m256i*>(from);
        return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
    }
    IN_PLACE void store(Word* to) const {
        auto* halves = reinterpret_cast<__m256i*>(to);
        _mm256_storeu_si256(halves, left);
        _mm256_storeu_si256(halves + 1, right);
    }
    IN_PLACE Pairs plus(Word x, Pairs w) const {
        const __m256i each = _mm256_set1_epi32(x);
        return {_mm256_add_epi32(left, _mm256_madd_epi16(each, w.left)),
                _mm256_add_epi32(right, _mm256_madd_epi16(each, w.right))};
    }
    IN_PLACE Pairs operator+(Pairs other) const {
        return {_mm256_add_epi32(left, other.left), _mm256_add_epi32(right, other.right)};
    }
};
#endif
// Whether words of a row lie in memory as its items do.
template <class Panel>
constexpr bool AS_THEY_LIE = Panel::ITEMS * sizeof(typename Panel::Item) == sizeof(typename Panel::Word);
// Items of a row as words, of which the last is filled up with zeros.
template <class Panel, class Item = typename Panel::Item, class Word = typename Panel::Word>
void copy_row(const Item* from, int64_t items, Word* to) {
    to[(items - 1) / Panel::ITEMS] = 0;
    if constexpr (AS_THEY_LIE<Panel>) {
        std::memcpy(to, from, items * sizeof(Item));
    } else {
        auto* wide = reinterpret_cast<char*>(to);
        int64_t i = 0;
        for (; i + 16 <= items; i += 16, wide += 32) {
            const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
            _mm256_storeu_si256(
                reinterpret_cast<__m256i*>(wide),
                std::is_signed_v<Item> ? _mm256_cvtepi8_epi16(some) : _mm256_cvtepu8_epi16(some));
        }
        for (; i < items; ++i, wide += 2) {
            const int16_t one = from[i];
            std::memcpy(wide, &one, sizeof one);
        }
    }
}
template <class Panel, int... R, class Word = typename Panel::Word>
IN_PLACE void block_of(const Word* x, const Word* w, const Word* bias, Word* out,
                       int64_t words, int64_t n, int64_t columns, std::integer_sequence<int, R...>) {
    Panel sums[] = {(void(R), Panel::load(bias))...};
    for (; words > 0; words -= CHUNK, x += ROWS * STRIDE) {
        const Word *each = x, *end = w + Panel::WEIGHTS * std::min(words, CHUNK);
        for (; w < end; w += Panel::WEIGHTS, ++each) {
            _mm_prefetch(reinterpret_cast<const char*>(w + Panel::WEIGHTS * AHEAD), _MM_HINT_T0);
            const Panel weights = Panel::weights(w);
            ((sums[R] = sums[R].plus(each[R * STRIDE], weights)), ...);
        }
    }
    // No sum is needed after a call: what is would not be kept in a register.
    if (columns == COLUMNS) {
        (sums[R].store(out + R * n), ...);
        return;
    }
    Word every[sizeof...(R)][COLUMNS];
    (sums[R].store(every[R]), ...);
    for (const auto& of_a_row : every) out = std::copy_n(of_a_row, columns, out) + n - columns;
}
template <class Panel, int Rows, class Word = typename Panel::Word>
void block(const Word* x, const Word* w, const Word* bias, Word* out,
           int64_t words, int64_t n, int64_t columns) {
    block_of<Panel>(x, w, bias, out, words, n, columns, std::make_integer_sequence<int, Rows>());
}
template <class Panel, int... R>
auto block_with(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&block<Panel, 1>) blocks[] = {block<Panel, R + 1>...};
    return blocks[rows - 1];
}
// One row: a chain of additions would wait for each, so there are four.
template <class Panel, class Word = typename Panel::Word>
void row(const Word* x, const Word* w, const Word* bias, Word* out, int64_t words, int64_t columns) {
    constexpr Word none[COLUMNS] = {};
    Panel one = Panel::load(bias), two = Panel::load(none), three = two, four = two;
    constexpr int64_t step = Panel::WEIGHTS;
    int64_t i = 0;
    for (; i + 4 <= words; i += 4, w += 4 * step) {
        const char* ahead = reinterpret_cast<const char*>(w + step * AHEAD);
        _mm_prefetch(ahead, _MM_HINT_T0);
        _mm_prefetch(ahead + 4 * step, _MM_HINT_T0);
        _mm_prefetch(ahead + 8 * step, _MM_HINT_T0);
        _mm_prefetch(ahead + 12 * step, _MM_HINT_T0);
        one = one.plus(x[i], Panel::weights(w));
        two = two.plus(x[i + 1], Panel::weights(w + step));
        three = three.plus(x[i + 2], Panel::weights(w + 2 * step));
        four = four.plus(x[i + 3], Panel::weights(w + 3 * step));
    }
    for (; i < words; ++i, w += step) one = one.plus(x[i], Panel::weights(w));
    Word every[COLUMNS];
    ((one + two) + (three + four)).store(every);
    std::copy_n(every, columns, out);
}
// x: m rows of k items; w: panels; bias: n or null; out: (m, n)
template <class Panel, class Item = typename Panel::Item, class Word = typename Panel::Word>
AOTITorchError product(const Item* x, int64_t m, int64_t k, const Word* w, const Word* bias,
                       Word* out, int64_t n) {
    const int64_t words = (k + Panel::ITEMS - 1) / Panel::ITEMS;
    const int64_t panels = (n + COLUMNS - 1) / COLUMNS, chunks = (words + CHUNK - 1) / CHUNK;
    const int64_t parts = (m + ROWS - 1) / ROWS, part_size = chunks * ROWS * STRIDE;
    const bool in_place = m == 1 && AS_THEY_LIE<Panel> && k % Panel::ITEMS == 0;
    const int64_t copy_size[] = {in_place ? 0 : m == 1 ? words : parts * part_size}, copy_stride[] = {1};
    AtenTensorHandle copy_handle;
    void* copied;
    const int32_t dtype = aoti_torch_dtype_int32(), device = aoti_torch_device_type_cpu();
    if (auto error = aoti_torch_empty_strided(1, copy_size, copy_stride, dtype, device, 0, &copy_handle))
        return error;
    RAIIAtenTensorHandle owner(copy_handle);
    if (auto error = aoti_torch_get_data_ptr(owner, &copied)) return error;
    auto* copy = static_cast<Word*>(copied);
    if (m == 1 && !in_place) copy_row<Panel>(x, k, copy);
    const bool share = m * n * words / omp_get_max_threads() >= SHARE;
    #pragma omp parallel for schedule(static) if (share && m > 1)
    for (int64_t part = 0; part < (m > 1 ? parts : 0); ++part) {
        const int64_t begin = m * part / parts, end = m * (part + 1) / parts;
        for (int64_t r = begin; r < end; ++r)
            for (int64_t chunk = 0; chunk < chunks; ++chunk) {
                Word* to = copy + part * part_size + (chunk * ROWS + r - begin) * STRIDE;
                const int64_t from = chunk * CHUNK * Panel::ITEMS;
                copy_row<Panel>(x + r * k + from, std::min(CHUNK * Panel::ITEMS, k - from), to);
            }
    }
    const Word* rows_of_one = in_place ? reinterpret_cast<const Word*>(x) : copy;
    const int64_t groups = (parts + PARTS - 1) / PARTS;
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t number = 0; number < groups * panels; ++number) {
        const int64_t group = number / panels, panel = number % panels;
        const int64_t from = panel * COLUMNS, columns = std::min(COLUMNS, n - from);
        const Word* weights = w + panel * Panel::WEIGHTS * words;
        Word first[COLUMNS] = {};
        if (bias) std::copy_n(bias + from, columns, first);
        if (m == 1) {
            row<Panel>(rows_of_one, weights, first, out + from, words, columns);
            continue;
        }
        for (int64_t part = parts * group / groups; part < parts * (group + 1) / groups; ++part) {
            const int64_t begin = m * part / parts, rows = m * (part + 1) / parts - begin;
            block_with<Panel>(rows, std::make_integer_sequence<int, ROWS>())(
                copy + part * part_size, weights, first, out + begin * n + from, words, n, columns);
        }
    }
    return AOTI_TORCH_SUCCESS;
}
template <class Panel, class Item = typename Panel::Item, class Word = typename Panel::Word>
AOTITorchError layer(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t n,
                     int32_t dtype, AtenTensorHandle* result) {
    int64_t* sizes;
    void *x, *w, *added = nullptr, *out;
    if (auto error = aoti_torch_get_sizes(input, &sizes)) return error;
    const int64_t m = sizes[0], k = sizes[1], made_sizes[] = {m, n}, made_strides[] = {n, 1};
    AtenTensorHandle made;
    if (auto error = aoti_torch_empty_strided(
            2, made_sizes, made_strides, dtype, aoti_torch_device_type_cpu(), 0, &made)) return error;
    RAIIAtenTensorHandle owner(made);
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = bias ? aoti_torch_get_data_ptr(bias, &added) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    if (auto error = product<Panel>(static_cast<const Item*>(x), m, k, static_cast<const Word*>(w),
                                    static_cast<const Word*>(added), static_cast<Word*>(out), n))
        return error;
    *result = owner.release();
    return AOTI_TORCH_SUCCESS;
}
}
// As torch's own C functions: handles in, the handle of a new tensor out, an error code returned.
// input: (m, k), contiguous; weight: (panels, k, 16), or (n, k) as oneDNN packs it; bias: (n) or null.
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t n,
        AtenTensorHandle* result) {
    int64_t dimensions;
    if (auto error = aoti_torch_get_dim(weight, &dimensions)) return error;
    if (dimensions == 2) {
        const double* no_numbers[] = {nullptr};
        const char* no_word = "";
        return aoti_torch_cpu__linear_pointwise(
            input, weight, bias ? &bias : nullptr, "none", no_numbers, 0, &no_word, result);
    }
    return panels::layer<panels::Floats>(input, weight, bias, n, aoti_torch_dtype_float32(), result);
}
// input: (m, k) of int8 or uint8, contiguous; weight: (panels, words, 16, 2) of int8; result: int32
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels_pairs(
        AtenTensorHandle input, AtenTensorHandle weight, int64_t n, AtenTensorHandle* result) {
    int32_t dtype;
    if (auto error = aoti_torch_get_dtype(input, &dtype)) return error;
    const int32_t sums = aoti_torch_dtype_int32();
    if (dtype == aoti_torch_dtype_int8())
        return panels::layer<panels::Pairs<int8_t>>(input, weight, nullptr, n, sums, result);
    return panels::layer<panels::Pairs<uint8_t>>(input, weight, nullptr, n, sums, result);
}
#ifdef __AVX512BW__
// input: (m, k) of uint8, contiguous; weight: (panels, words, 16, 4) of int8; result: int32
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels_int8(
        AtenTensorHandle input, AtenTensorHandle weight, int64_t n, AtenTensorHandle* result) {
    return panels::layer<panels::Integers>(input, weight, nullptr, n, aoti_torch_dtype_int32(), result);
}
#endif
}
"""


# Targets of nodes, and how inductor lowers them. To see what a graph makes of tensors, they are called with
# these, too.


def in_panels(weight: Any) -> Any:
    """(n, k) of float32 to (panels, k, 16), the last filled up. The runtime does it, but for a weight that
    the graph itself makes, and returns."""
    if isinstance(weight, torch.Tensor):
        n, k = weight.shape
        return weight.new_empty(-(-n // COLUMNS), k, COLUMNS)
    n, k = map(int, weight.get_size())
    if n % COLUMNS:
        weight = _lowered(aten.constant_pad_nd, weight, [0, 0, 0, -n % COLUMNS])
    split = _lowered(aten.view, weight, [-(-n // COLUMNS), COLUMNS, k])
    return _lowered(aten.permute, split, [0, 2, 1])


def packed_here(weight: Any) -> Any:
    """The same, but that the runtime packs it for oneDNN where the processor has AVX-512."""
    return in_panels(weight)


STEPS = {in_panels: "in_panels", packed_here: "packed_here"}
"""What the runtime does by itself (templates/weights.py), and its name for it."""


def layer(x: Any, weight: Any, bias: Any, n: int) -> Any:
    """(m, k) of float32 to (m, n). weight: as `in_panels` or `packed_here` gives it; bias: (n) or
    None."""
    if isinstance(x, torch.Tensor):
        return x.new_empty(x.shape[0], n)
    if not _calls_c_functions():
        factors = x, _unpacked(weight, [0, 2, 1], n, x.get_size()[1])
        return _lowered(aten.mm, *factors) if bias is None else _lowered(aten.addmm, bias, *factors)
    given = [x, weight] if bias is None else [x, weight, bias]
    constants = (n,) if bias is not None else (None, n)
    return call_of(_FUNCTIONS, "aoti_torch_cpu_precompiled_panels", given, constants, n, torch.float32)


def int8_layer(x: Any, weight: Any, n: int) -> Any:
    """(m, k) of uint8 or int8 to (m, n) of int32. weight: (panels, words, 16, items of a word), of int8; of
    four items to a word, only uint8 is multiplied, and by VNNI."""
    if isinstance(x, torch.Tensor):
        return x.new_empty(x.shape[0], n, dtype=torch.int32)
    if not _calls_c_functions():
        return _lowered(aten._int_mm, x, _unpacked(weight, [0, 2, 1, 3], n, x.get_size()[1]))
    kind = {2: "pairs", 4: "int8"}[int(weight.get_size()[-1])]
    name = f"aoti_torch_cpu_precompiled_panels_{kind}"
    return call_of(_FUNCTIONS, name, [x, weight], (n,), n, torch.int32)


def _lowers_itself(target: Callable[..., Any]) -> None:
    target._inductor_lowering_function = True  # type: ignore[attr-defined]


for _target in (in_panels, packed_here, layer, int8_layer):
    _lowers_itself(_target)


def _calls_c_functions() -> bool:
    """Whether the graph gets inductor's C++ wrapper. The Python one, which few get, calls operators."""
    from torch._inductor.virtualized import V

    return bool(V.graph.cpp_wrapper)


def _unpacked(weight: Any, order: list[int], n: int, k: int) -> Any:
    """Panels as what they were made of, turned: (k, n)."""
    turned = _lowered(aten.permute, weight, order)
    whole = _lowered(aten.view, turned, [-(-n // COLUMNS) * COLUMNS, -1])
    for dimension, size in enumerate((n, k)):
        whole = _lowered(aten.slice, whole, dimension, 0, size, overload="Tensor")
    return _lowered(aten.permute, whole, [1, 0])


def _lowered(operator: Any, *args: Any, overload: str = "default") -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[getattr(operator, overload)](*args)
