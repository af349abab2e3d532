// Convolutions of each channel by itself (convolutions.py). Pixels of a row are computed together, of 16
// channels: each pixel of the image and each weight is read once for all of them.
namespace {
namespace depthwise {
using namespace convolutions;
// Channels that one thread takes at a time.
constexpr int64_t NEAR = 128;
struct Filter {
    int64_t height, stride, above, left;  // above, left: padding
};
// To the sums of pixels beside each other, what the column T of the image, as they see it, gives for column J of
// the filter: to the one pixel for which it is that column, if it is one of them.
template <int Stride, int T, int J, int Together>
IN_PLACE void add(__m512 x, __m512 w, __m512 (&sums)[Together]) {
    constexpr int R = (T - J) / Stride;
    if constexpr (T >= J && R * Stride == T - J && R < Together) sums[R] = _mm512_fmadd_ps(x, w, sums[R]);
}
// x: where the filter begins for the first of the pixels, rows of the image so far apart; first, last: rows of the
// filter that are inside; low, high: columns that are, for Edge; here: pixels that are stored, for Edge; there:
// the channels. What is outside of the image is left out, so that an infinite weight makes no NaN of it.
template <int Width, int Stride, int Which, bool Edge, int... R, int... T, int... J>
IN_PLACE void pixels(const Given& all, const float* x, const float* w, __m512 begin, float* out, const float* other,
                     int64_t first, int64_t last, int64_t low, int64_t high, int64_t here, __mmask16 there,
                     std::integer_sequence<int, R...>, std::integer_sequence<int, T...>,
                     std::integer_sequence<int, J...>) {
    const int64_t apart = all.channels, row = all.width * apart;
    __m512 sums[] = {(void(R), begin)...};
    for (int64_t i = first; i < last; ++i) {
        const float *at = x + i * row, *weights = w + i * Width * COLUMNS;
        const __m512 ws[] = {_mm512_loadu_ps(weights + J * COLUMNS)...};
        const auto column = [&](auto t) __attribute__((always_inline)) {
            constexpr int C = decltype(t)::value;
            if (Edge && (C < low || C >= high)) return;
            const __m512 pixel = _mm512_maskz_loadu_ps(there, at + C * apart);
            (add<Stride, C, J>(pixel, ws[J], sums), ...);
        };
        (column(std::integral_constant<int, T>()), ...);
    }
    const auto store = [&](int64_t r, __m512 x) __attribute__((always_inline)) {
        if (Edge && r >= here) return;
        if (other) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(there, other + r * apart));
        _mm512_mask_storeu_ps(out + r * apart, there, function<Which>(x, all.one, all.two));
    };
    (store(R, sums[R]), ...);
}
template <int Width, int Stride, int Which, int Together>
void rows(const Given& all, const Filter& filter) {
    constexpr std::make_integer_sequence<int, Together> R;
    constexpr std::make_integer_sequence<int, (Together - 1) * Stride + Width> T;
    constexpr std::make_integer_sequence<int, Width> J;
    const int64_t groups = (all.channels + NEAR - 1) / NEAR;
    const int64_t numbers = all.images * all.to_height * all.to_width * all.channels;
    const bool share = numbers * filter.height * Width / omp_get_max_threads() >= SHARE;
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t item = 0; item < all.images * all.to_height * groups; ++item) {
        const int64_t group = item % groups, end = std::min(all.channels, (group + 1) * NEAR);
        const int64_t row = item / groups, image = row / all.to_height;
        const int64_t top = row % all.to_height * filter.stride - filter.above;
        const int64_t first = std::max<int64_t>(0, -top), last = std::min(filter.height, all.height - top);
        for (int64_t column = 0; column < all.to_width; column += Together) {
            const int64_t left = column * Stride - filter.left, here = all.to_width - column;
            const bool edge = here < Together || left < 0 || left + static_cast<int64_t>(T.size()) > all.width;
            const int64_t from = ((image * all.height + top) * all.width + left) * all.channels;
            const int64_t to = (row * all.to_width + column) * all.channels;
            for (int64_t c = group * NEAR; c < end; c += COLUMNS) {
                const __mmask16 there = first_of(end - c);
                const __m512 begin = all.bias ? _mm512_maskz_loadu_ps(there, all.bias + c) : _mm512_setzero_ps();
                const float *w = all.w + c * filter.height * Width, *other = all.other ? all.other + to + c : nullptr;
                if (edge)
                    pixels<Width, Stride, Which, true>(all, all.x + from + c, w, begin, all.out + to + c, other, first,
                                                       last, -left, all.width - left, here, there, R, T, J);
                else
                    pixels<Width, Stride, Which, false>(all, all.x + from + c, w, begin, all.out + to + c, other, first,
                                                        last, 0, 0, here, there, R, T, J);
            }
        }
    }
}
// How many pixels are computed together: seven or eight, as more of a row fill such blocks.
template <int Width, int Stride, int Which>
void multiply(const Given& all, const Filter& filter) {
    const bool by_seven = (all.to_width + 6) / 7 * 7 <= (all.to_width + 7) / 8 * 8;
    (by_seven ? rows<Width, Stride, Which, 7> : rows<Width, Stride, Which, 8>)(all, filter);
}
}
}
// weight: (panels, height * Width, 16), of the channels; pad_height, pad_width: half of all padding, from which the
// size of the result is; above, left: what of it is there
template <int Width, int Stride, int Which>
AOTITorchError precompiled_depthwise(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle third, AtenTensorHandle fourth,
        int64_t n, int64_t has_bias, int64_t height, int64_t stride, int64_t pad_height, int64_t pad_width,
        int64_t above, int64_t left, double one, double two, AtenTensorHandle* result) {
    convolutions::Given given;
    if (auto error = convolutions::given_for(input, n, one, two, given)) return error;
    given.to_height = (given.height + 2 * pad_height - height) / stride + 1;
    given.to_width = (given.width + 2 * pad_width - Width) / Stride + 1;
    const depthwise::Filter filter = {height, stride, above, left};
    const auto multiplied = [&](const convolutions::Given& all) {
        depthwise::multiply<Width, Stride, Which>(all, filter);
    };
    return convolutions::call(input, weight, third, fourth, has_bias, given, multiplied, result);
}
