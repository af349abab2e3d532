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
// Rows, n apart, of so many columns, with another tensor's added to them, unless it is null.
template <int Which>
void follow(float* out, const float* other, int64_t rows, int64_t n, int64_t columns, float one, float two) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; c += COLUMNS) {
            const int64_t place = r * n + c;
            const __mmask16 there = first_of(columns - c);
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
void multiply(const Given& given, int64_t which) {
    const int64_t m = given.images * given.height * given.width, k = given.channels, n = given.n;
    const float *x = given.x, *w = given.w, *other = given.other;
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
        const __mmask16 last = first_of(columns - (count - 1) * COLUMNS);
        float first[PANELS * COLUMNS] = {};
        if (given.bias) std::copy_n(given.bias + column, columns, first);
        // Parts of equal size.
        const int64_t parts = (rows + ROWS - 1) / ROWS;
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t row = first_row + rows * part / parts;
            const int64_t together = first_row + rows * (part + 1) / parts - row;
            float* to = given.out + row * n + column;
            block_for(count, together)(x + row * k, k, w + begin * k * COLUMNS, k * COLUMNS, first, to, n, last);
            if (other || which)
                after(to, other ? other + row * n + column : nullptr, together, n, columns, given.one, given.two);
        }
    }
}
}
}
// weight: (panels, channels, 16)
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_conv1x1(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle third, AtenTensorHandle fourth,
        int64_t n, int64_t has_bias, int64_t which, double one, double two, AtenTensorHandle* result) {
    convolutions::Given given;
    if (auto error = convolutions::given_for(input, n, one, two, given)) return error;
    given.to_height = given.height, given.to_width = given.width;
    const auto multiplied = [&](const convolutions::Given& all) { conv1x1::multiply(all, which); };
    return convolutions::call(input, weight, third, fourth, has_bias, given, multiplied, result);
}
