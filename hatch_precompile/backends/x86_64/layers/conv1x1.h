// Convolutions by 1 x 1 filters (convolutions.py): products of the pixels with weights in panels (panels.py),
// and what follows them. The pixels are read as they lie.
namespace {
namespace conv1x1 {
using namespace convolutions;
// Sums that are in registers together: of so many rows, with so many panels.
constexpr int64_t ROWS = 6, PANELS = 4;
// Numbers of rows that stay near while all panels are multiplied with them, and rows at most.
constexpr int64_t NEAR = 1 << 16, CHUNK = 96;
IN_PLACE __m512 sum(float x, __m512 w, __m512 all) { return _mm512_fmadd_ps(_mm512_set1_ps(x), w, all); }
// A part of a convolution. x: rows, so far apart, of k numbers; w: panels, so far apart; first: what each column
// begins with; out, other: rows, n apart; last: which columns of the last panel there are
struct Part {
    const float *x, *w, *first, *other;
    float* out;
    int64_t k, apart, n;
    __mmask16 last;
    float one, two;
};
template <int Which, int Panels, int... R>
IN_PLACE void block_of(const Part& part, std::integer_sequence<int, R...>) {
    const float* at[] = {(part.x + R * part.k)...};
    const float *first = part.first, *w = part.w;
    const int64_t apart = part.apart;
    const __m512 begin = _mm512_loadu_ps(first), begin1 = Panels > 1 ? _mm512_loadu_ps(first + 16) : begin;
    const __m512 begin2 = Panels > 2 ? _mm512_loadu_ps(first + 32) : begin;
    const __m512 begin3 = Panels > 3 ? _mm512_loadu_ps(first + 48) : begin;
    __m512 a[] = {(void(R), begin)...}, b[] = {(void(R), begin1)...}, c[] = {(void(R), begin2)...},
           d[] = {(void(R), begin3)...};
    for (int64_t i = 0; i < part.k; ++i, w += COLUMNS) {
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
    const auto store = [&](int64_t row, int64_t panel, __m512 x) __attribute__((always_inline)) {
        const int64_t place = row * part.n + panel * COLUMNS;
        const __mmask16 there = panel < Panels - 1 ? 0xffff : part.last;
        if (part.other) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(there, part.other + place));
        _mm512_mask_storeu_ps(part.out + place, there, function<Which>(x, part.one, part.two));
    };
    (store(R, 0, a[R]), ...);
    if constexpr (Panels > 1) (store(R, 1, b[R]), ...);
    if constexpr (Panels > 2) (store(R, 2, c[R]), ...);
    if constexpr (Panels > 3) (store(R, 3, d[R]), ...);
}
template <int Which, int Panels, int Rows>
void block(const Part& part) {
    block_of<Which, Panels>(part, std::make_integer_sequence<int, Rows>());
}
template <int Which, int Panels, int... R>
auto block_with(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&block<Which, 1, 1>) blocks[] = {block<Which, Panels, R + 1>...};
    return blocks[rows - 1];
}
template <int Which>
auto block_for(int64_t panels, int64_t rows) {
    constexpr std::make_integer_sequence<int, ROWS> all;
    return panels == 1   ? block_with<Which, 1>(rows, all)
           : panels == 2 ? block_with<Which, 2>(rows, all)
           : panels == 3 ? block_with<Which, 3>(rows, all)
                         : block_with<Which, 4>(rows, all);
}
template <int Which>
void multiply(const Given& given) {
    const int64_t m = given.images * given.height * given.width, k = given.channels, n = given.n;
    const int64_t panels = (n + COLUMNS - 1) / COLUMNS, groups = (panels + PANELS - 1) / PANELS;
    const int64_t at_once = std::clamp(NEAR / k / ROWS * ROWS, ROWS, CHUNK), chunks = (m + at_once - 1) / at_once;
    const bool share = m * n * k / omp_get_max_threads() >= SHARE;
    #pragma omp parallel for schedule(static) if (share)
    for (int64_t item = 0; item < chunks * groups; ++item) {
        const int64_t group = item % groups, begin = panels * group / groups;
        const int64_t count = panels * (group + 1) / groups - begin;
        const int64_t first_row = item / groups * at_once, rows = std::min(at_once, m - first_row);
        const int64_t column = begin * COLUMNS, columns = std::min(count * COLUMNS, n - column);
        const __mmask16 last = first_of(columns - (count - 1) * COLUMNS);
        float first[PANELS * COLUMNS] = {};
        if (given.bias) std::copy_n(given.bias + column, columns, first);
        // Parts of equal size.
        const int64_t parts = (rows + ROWS - 1) / ROWS;
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t row = first_row + rows * part / parts;
            const int64_t together = first_row + rows * (part + 1) / parts - row;
            const int64_t to = row * n + column;
            block_for<Which>(count, together)({given.x + row * k, given.w + begin * k * COLUMNS, first,
                                               given.other ? given.other + to : nullptr, given.out + to, k,
                                               k * COLUMNS, n, last, given.one, given.two});
        }
    }
}
}
}
// weight: (panels, channels, 16)
template <int Which>
AOTITorchError precompiled_conv1x1(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle third, AtenTensorHandle fourth,
        int64_t n, int64_t has_bias, double one, double two, AtenTensorHandle* result) {
    convolutions::Given given;
    if (auto error = convolutions::given_for(input, n, one, two, given)) return error;
    given.to_height = given.height, given.to_width = given.width;
    return convolutions::call(input, weight, third, fourth, has_bias, given, conv1x1::multiply<Which>, result);
}
