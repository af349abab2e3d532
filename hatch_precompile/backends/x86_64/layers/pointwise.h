// Convolutions by 1 x 1 filters, compiled into the library of a graph (pointwise.py): products of the pixels,
// channels last, with weights in panels (panels.py), and what follows them. The pixels are read as they lie.
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
extern "C" __m512 Sleef_expf16_u10(__m512);
extern "C" __m512 Sleef_tanhf16_u10(__m512);
extern "C" __m512 Sleef_erff16_u10(__m512);
namespace {
namespace pointwise {
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
constexpr int64_t COLUMNS = 16;
// Sums that are in registers together: of so many rows, with so many panels.
constexpr int64_t ROWS = 6, PANELS = 4;
// Numbers of rows that stay near while all panels are multiplied with them, and rows at most.
constexpr int64_t NEAR = 1 << 16, CHUNK = 96;
// Multiplications from which a thread more makes up for starting it.
constexpr int64_t SHARE = 1 << 17;
IN_PLACE __m512 sum(float x, __m512 w, __m512 all) { return _mm512_fmadd_ps(_mm512_set1_ps(x), w, all); }
// x: rows, so far apart, of k numbers; w: panels, so far apart; first: what each column begins with; out: rows,
// n apart; last: which columns of the last panel there are
template <int Panels, int... R>
IN_PLACE void block_of(const float* x, int64_t k, const float* w, int64_t apart, const float* first, float* out,
                       int64_t n, __mmask16 last, std::integer_sequence<int, R...>) {
    const float* at[] = {(x + R * k)...};
    const __m512 begin = _mm512_loadu_ps(first), begin1 = Panels > 1 ? _mm512_loadu_ps(first + 16) : begin;
    const __m512 begin2 = Panels > 2 ? _mm512_loadu_ps(first + 32) : begin;
    const __m512 begin3 = Panels > 3 ? _mm512_loadu_ps(first + 48) : begin;
    __m512 a[] = {(void(R), begin)...}, b[] = {(void(R), begin1)...}, c[] = {(void(R), begin2)...},
           d[] = {(void(R), begin3)...};
    for (int64_t i = 0; i < k; ++i, w += COLUMNS) {
        const __m512 one = _mm512_loadu_ps(w);
        if constexpr (Panels == 1) {
            ((a[R] = sum(at[R][i], one, a[R])), ...);
        } else if constexpr (Panels == 2) {
            const __m512 two = _mm512_loadu_ps(w + apart);
            ((a[R] = sum(at[R][i], one, a[R]), b[R] = sum(at[R][i], two, b[R])), ...);
        } else if constexpr (Panels == 3) {
            const __m512 two = _mm512_loadu_ps(w + apart), three = _mm512_loadu_ps(w + 2 * apart);
            ((a[R] = sum(at[R][i], one, a[R]), b[R] = sum(at[R][i], two, b[R]),
              c[R] = sum(at[R][i], three, c[R])), ...);
        } else {
            const __m512 two = _mm512_loadu_ps(w + apart), three = _mm512_loadu_ps(w + 2 * apart);
            const __m512 four = _mm512_loadu_ps(w + 3 * apart);
            ((a[R] = sum(at[R][i], one, a[R]), b[R] = sum(at[R][i], two, b[R]),
              c[R] = sum(at[R][i], three, c[R]), d[R] = sum(at[R][i], four, d[R])), ...);
        }
    }
    constexpr __mmask16 every = 0xffff;
    (_mm512_mask_storeu_ps(out + R * n, Panels > 1 ? every : last, a[R]), ...);
    if constexpr (Panels > 1) (_mm512_mask_storeu_ps(out + R * n + 16, Panels > 2 ? every : last, b[R]), ...);
    if constexpr (Panels > 2) (_mm512_mask_storeu_ps(out + R * n + 32, Panels > 3 ? every : last, c[R]), ...);
    if constexpr (Panels > 3) (_mm512_mask_storeu_ps(out + R * n + 48, last, d[R]), ...);
}
template <int Panels, int Rows>
void block(const float* x, int64_t k, const float* w, int64_t apart, const float* first, float* out, int64_t n,
           __mmask16 last) {
    block_of<Panels>(x, k, w, apart, first, out, n, last, std::make_integer_sequence<int, Rows>());
}
template <int Panels, int... R>
auto block_with(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&block<1, 1>) blocks[] = {block<Panels, R + 1>...};
    return blocks[rows - 1];
}
auto block_for(int64_t panels, int64_t rows) {
    constexpr std::make_integer_sequence<int, ROWS> all;
    return panels == 1   ? block_with<1>(rows, all)
           : panels == 2 ? block_with<2>(rows, all)
           : panels == 3 ? block_with<3>(rows, all)
                         : block_with<4>(rows, all);
}
// What follows, by the numbers that pointwise.py has for them. Each keeps NaN: of two numbers the minimum and
// the maximum are the second if one is none.
enum Function { NONE, RELU, HARDTANH, HARDSIGMOID, HARDSWISH, SIGMOID, SWISH, TANH, LEAKY_RELU, GELU, GELU_TANH };
IN_PLACE __m512 each(float one) { return _mm512_set1_ps(one); }
IN_PLACE __m512 between(float least, __m512 x, float most) {
    return _mm512_min_ps(each(most), _mm512_max_ps(each(least), x));
}
IN_PLACE __m512 one_and_power(__m512 x) {  // 1 + exp(-x)
    return _mm512_add_ps(each(1), Sleef_expf16_u10(_mm512_sub_ps(_mm512_setzero_ps(), x)));
}
IN_PLACE __m512 half_and(__m512 x, __m512 more) {  // x / 2 * (1 + more)
    return _mm512_mul_ps(_mm512_mul_ps(each(0.5f), x), _mm512_add_ps(each(1), more));
}
template <int Which>
IN_PLACE __m512 function(__m512 x, float one, float two) {
    if constexpr (Which == RELU) return _mm512_max_ps(_mm512_setzero_ps(), x);
    if constexpr (Which == HARDTANH) return between(one, x, two);
    if constexpr (Which == HARDSIGMOID || Which == HARDSWISH) {
        const __m512 part = between(0, _mm512_add_ps(x, each(3)), 6);
        return _mm512_mul_ps(Which == HARDSIGMOID ? part : _mm512_mul_ps(x, part), each(1 / 6.0f));
    }
    if constexpr (Which == SIGMOID) return _mm512_div_ps(each(1), one_and_power(x));
    if constexpr (Which == SWISH) return _mm512_div_ps(x, one_and_power(x));
    if constexpr (Which == TANH) return Sleef_tanhf16_u10(x);
    if constexpr (Which == LEAKY_RELU) {
        const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
        return _mm512_mask_mul_ps(x, ~positive, x, each(one));
    }
    if constexpr (Which == GELU) return half_and(x, Sleef_erff16_u10(_mm512_mul_ps(x, each(0.70710678f))));
    if constexpr (Which == GELU_TANH) {
        const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
        const __m512 inner = _mm512_fmadd_ps(cube, each(0.044715f), x);
        return half_and(x, Sleef_tanhf16_u10(_mm512_mul_ps(inner, each(0.79788456f))));
    }
    return x;
}
// Rows, n apart, of so many columns, with another tensor's added to them, unless it is null.
template <int Which>
void follow(float* out, const float* other, int64_t rows, int64_t n, int64_t columns, float one, float two) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; c += COLUMNS) {
            const int64_t place = r * n + c;
            const auto there = static_cast<__mmask16>((1u << std::min(columns - c, COLUMNS)) - 1);
            __m512 x = _mm512_maskz_loadu_ps(there, out + place);
            if (other) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(there, other + place));
            _mm512_mask_storeu_ps(out + place, there, function<Which>(x, one, two));
        }
}
template <int... F>
auto follow_with(int64_t which, std::integer_sequence<int, F...>) {
    static constexpr decltype(&follow<NONE>) all[] = {follow<F>...};
    return all[which];
}
// x: (m, k); w: panels; bias: n or null; other: (m, n) or null; out: (m, n)
void multiply(const float* x, const float* w, const float* bias, const float* other, float* out, int64_t m,
              int64_t k, int64_t n, int64_t which, float one, float two) {
    const int64_t panels = (n + COLUMNS - 1) / COLUMNS, groups = (panels + PANELS - 1) / PANELS;
    const int64_t at_once = std::clamp(NEAR / k / ROWS * ROWS, ROWS, CHUNK), chunks = (m + at_once - 1) / at_once;
    const bool share = m * n * k / omp_get_max_threads() >= SHARE;
    const auto after = follow_with(which, std::make_integer_sequence<int, GELU_TANH + 1>());
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t item = 0; item < chunks * groups; ++item) {
        const int64_t group = item % groups, begin = panels * group / groups;
        const int64_t count = panels * (group + 1) / groups - begin;
        const int64_t first_row = item / groups * at_once, rows = std::min(at_once, m - first_row);
        const int64_t column = begin * COLUMNS, columns = std::min(count * COLUMNS, n - column);
        const auto last = static_cast<__mmask16>((1u << (columns - (count - 1) * COLUMNS)) - 1);
        float first[PANELS * COLUMNS] = {};
        if (bias) std::copy_n(bias + column, columns, first);
        // Parts of equal size.
        const int64_t parts = (rows + ROWS - 1) / ROWS;
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t row = first_row + rows * part / parts;
            const int64_t together = first_row + rows * (part + 1) / parts - row;
            float* to = out + row * n + column;
            block_for(count, together)(x + row * k, k, w + begin * k * COLUMNS, k * COLUMNS, first, to, n, last);
            if (other || which)
                after(to, other ? other + row * n + column : nullptr, together, n, columns, one, two);
        }
    }
}
}
}
// As torch's own C functions: handles in, the handle of a new tensor out, an error code returned. All float32.
// input: (images, k, height, width), channels last; weight: (panels, k, 16); third, fourth: a bias, (n), and
// another tensor, as the result, or what there is of them; result: (images, n, height, width), channels last
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_pointwise(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle third, AtenTensorHandle fourth,
        int64_t n, int64_t has_bias, int64_t which, double one, double two, AtenTensorHandle* result) {
    int64_t* sizes;
    void *x, *w, *added = nullptr, *other = nullptr, *out;
    if (auto error = aoti_torch_get_sizes(input, &sizes)) return error;
    const int64_t images = sizes[0], k = sizes[1], height = sizes[2], width = sizes[3];
    const int64_t made_sizes[] = {images, n, height, width};
    const int64_t made_strides[] = {height * width * n, 1, width * n, n};
    const int32_t dtype = aoti_torch_dtype_float32(), device = aoti_torch_device_type_cpu();
    AtenTensorHandle made;
    if (auto error = aoti_torch_empty_strided(4, made_sizes, made_strides, dtype, device, 0, &made)) return error;
    RAIIAtenTensorHandle owner(made);
    const AtenTensorHandle bias = has_bias ? third : nullptr, more = has_bias ? fourth : third;
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = bias ? aoti_torch_get_data_ptr(bias, &added) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = more ? aoti_torch_get_data_ptr(more, &other) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    pointwise::multiply(
        static_cast<const float*>(x), static_cast<const float*>(w), static_cast<const float*>(added),
        static_cast<const float*>(other), static_cast<float*>(out), images * height * width, k, n, which,
        static_cast<float>(one), static_cast<float>(two));
    *result = owner.release();
    return AOTI_TORCH_SUCCESS;
}
