// What our functions for convolutions share (convolutions.py): what follows one, and how they are given
// tensors. All are float32, images channels last.
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
extern "C" __m512 Sleef_tanhf16_u10(__m512);
extern "C" __m512 Sleef_erff16_u10(__m512);
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
namespace {
namespace convolutions {
// Filters, or channels, of a panel of weights.
constexpr int64_t COLUMNS = 16;
// Multiplications from which a thread more makes up for starting it.
constexpr int64_t SHARE = 1 << 17;
IN_PLACE __mmask16 first_of(int64_t columns) {
    return static_cast<__mmask16>((1u << std::min(columns, COLUMNS)) - 1);
}
// What follows, by the numbers that convolutions.py has for them. Each keeps NaN: of two numbers the minimum and
// the maximum are the second if one is none.
enum Function { NONE, RELU, HARDTANH, HARDSIGMOID, HARDSWISH, SIGMOID, SWISH, TANH, LEAKY_RELU, GELU, GELU_TANH };
IN_PLACE __m512 each(float one) { return _mm512_set1_ps(one); }
IN_PLACE __m512 between(float least, __m512 x, float most) {
    return _mm512_min_ps(each(most), _mm512_max_ps(each(least), x));
}
// exp(x), at most 1.01 of the last place off, as Sleef's is by 1.0; in line, where that is a call that every register
// is put away for. The polynomial is that of Cephes (expf.c).
IN_PLACE __m512 exponential(__m512 x) {
    x = between(-104, x, 89);  // beyond, it is 0 or infinite
    const __m512 twos = _mm512_roundscale_ps(_mm512_mul_ps(x, each(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    const __m512 rest = _mm512_fnmadd_ps(twos, each(-2.12194440e-4f), _mm512_fnmadd_ps(twos, each(0.693359375f), x));
    __m512 sum = _mm512_fmadd_ps(each(1.9875691500e-4f), rest, each(1.3981999507e-3f));
    sum = _mm512_fmadd_ps(sum, rest, each(8.3334519073e-3f));
    sum = _mm512_fmadd_ps(sum, rest, each(4.1665795894e-2f));
    sum = _mm512_fmadd_ps(sum, rest, each(1.6666665459e-1f));
    sum = _mm512_fmadd_ps(sum, rest, each(5.0000001201e-1f));
    sum = _mm512_fmadd_ps(_mm512_mul_ps(rest, rest), sum, rest);
    return _mm512_scalef_ps(_mm512_add_ps(sum, each(1)), twos);
}
IN_PLACE __m512 one_plus_exp(__m512 x) {  // 1 + exp(-x)
    return _mm512_add_ps(each(1), exponential(_mm512_sub_ps(_mm512_setzero_ps(), x)));
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
    if constexpr (Which == SIGMOID) return _mm512_div_ps(each(1), one_plus_exp(x));
    if constexpr (Which == SWISH) return _mm512_div_ps(x, one_plus_exp(x));
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
// One convolution. bias: n or null; other: what is added to the result, as that lies, or null
struct Given {
    const float *x, *w, *bias, *other;
    float* out;
    int64_t images, channels, height, width, n, to_height, to_width;
    float one, two;  // of what follows
};
// As torch's own C functions: handles in, the handle of a new tensor out, an error code returned.
// input: (images, channels, height, width); weight: panels; third, fourth: a bias, (n), and another tensor, as
// the result, or what there is of them; given: the sizes of the result and the numbers are there already;
// result: (images, n, to_height, to_width)
template <class Convolution>
AOTITorchError call(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle third, AtenTensorHandle fourth,
                    bool has_bias, Given given, Convolution convolution, AtenTensorHandle* result) {
    void *x, *w, *bias = nullptr, *other = nullptr, *out;
    const int64_t pixels = given.to_height * given.to_width;
    const int64_t sizes[] = {given.images, given.n, given.to_height, given.to_width};
    const int64_t strides[] = {pixels * given.n, 1, given.to_width * given.n, given.n};
    const int32_t dtype = aoti_torch_dtype_float32(), device = aoti_torch_device_type_cpu();
    AtenTensorHandle made;
    if (auto error = aoti_torch_empty_strided(4, sizes, strides, dtype, device, 0, &made)) return error;
    RAIIAtenTensorHandle owner(made);
    const AtenTensorHandle added = has_bias ? third : nullptr, more = has_bias ? fourth : third;
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = added ? aoti_torch_get_data_ptr(added, &bias) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = more ? aoti_torch_get_data_ptr(more, &other) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    given.x = static_cast<const float*>(x);
    given.w = static_cast<const float*>(w);
    given.bias = static_cast<const float*>(bias);
    given.other = static_cast<const float*>(other);
    given.out = static_cast<float*>(out);
    convolution(given);
    *result = owner.release();
    return AOTI_TORCH_SUCCESS;
}
AOTITorchError given_for(AtenTensorHandle input, int64_t n, double one, double two, Given& given) {
    int64_t* sizes;
    if (auto error = aoti_torch_get_sizes(input, &sizes)) return error;
    given = {};
    given.images = sizes[0], given.channels = sizes[1], given.height = sizes[2], given.width = sizes[3];
    given.n = n, given.one = static_cast<float>(one), given.two = static_cast<float>(two);
    return AOTI_TORCH_SUCCESS;
}
}
}
