// All steps of an LSTM layer, compiled into the library of a graph (recurrent.py).
//
// What the gates get of the inputs is there already. A step adds to it the product of the state before with
// the weights, which lie in the order in which they are read: for each 16 units, for each number of the
// state, what it is multiplied with for each gate. So a thread has all gates of a unit, and there is one wait
// in each step: for the others' part of the state. Each sum is taken in one order, whatever the number of
// threads.
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <cstring>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
#ifdef __AVX512F__
extern "C" __m512 Sleef_expf16_u10(__m512);
extern "C" __m512 Sleef_tanhf16_u10(__m512);
#else
extern "C" __m256 Sleef_expf8_u10(__m256);
extern "C" __m256 Sleef_tanhf8_u10(__m256);
#endif
namespace {
namespace recurrent {
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
constexpr int64_t GATES = 4, UNITS = 16, WORD = GATES * UNITS;
// Floats of the weights between what is multiplied and what is asked for.
constexpr int64_t AHEAD = 16 * WORD;
// Multiplications of a step from which a thread more makes up for waiting for it.
constexpr int64_t SHARE = 1 << 17;
#ifdef __AVX512F__
// Rows of the state whose sums are in registers together.
constexpr int ROWS = 6;
struct Vector {
    static constexpr int64_t SIZE = 16;
    __m512 all;
    IN_PLACE static Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
    IN_PLACE static Vector each(float one) { return {_mm512_set1_ps(one)}; }
    IN_PLACE void store(float* to) const { _mm512_storeu_ps(to, all); }
    IN_PLACE Vector plus(Vector x, Vector w) const { return {_mm512_fmadd_ps(x.all, w.all, all)}; }
    IN_PLACE Vector operator+(Vector other) const { return {_mm512_add_ps(all, other.all)}; }
    IN_PLACE Vector operator*(Vector other) const { return {_mm512_mul_ps(all, other.all)}; }
    IN_PLACE Vector sigmoid() const {
        const __m512 one = _mm512_set1_ps(1), minus = _mm512_sub_ps(_mm512_setzero_ps(), all);
        return {_mm512_div_ps(one, _mm512_add_ps(one, Sleef_expf16_u10(minus)))};
    }
    IN_PLACE Vector tanh() const { return {Sleef_tanhf16_u10(all)}; }
};
#else
constexpr int ROWS = 2;
struct Vector {
    static constexpr int64_t SIZE = 8;
    __m256 all;
    IN_PLACE static Vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
    IN_PLACE static Vector each(float one) { return {_mm256_set1_ps(one)}; }
    IN_PLACE void store(float* to) const { _mm256_storeu_ps(to, all); }
    IN_PLACE Vector plus(Vector x, Vector w) const { return {_mm256_fmadd_ps(x.all, w.all, all)}; }
    IN_PLACE Vector operator+(Vector other) const { return {_mm256_add_ps(all, other.all)}; }
    IN_PLACE Vector operator*(Vector other) const { return {_mm256_mul_ps(all, other.all)}; }
    IN_PLACE Vector sigmoid() const {
        const __m256 one = _mm256_set1_ps(1), minus = _mm256_sub_ps(_mm256_setzero_ps(), all);
        return {_mm256_div_ps(one, _mm256_add_ps(one, Sleef_expf8_u10(minus)))};
    }
    IN_PLACE Vector tanh() const { return {Sleef_tanhf8_u10(all)}; }
};
#endif
// What the gates of some rows get of the state, for a vector of units: sums, (rows, gates, vector). h: rows of
// so many numbers; w: (numbers, gates, 16), from the first of these units on
template <int... R>
IN_PLACE void multiply(const float* h, const float* w, int64_t numbers, float* sums,
                       std::integer_sequence<int, R...>) {
    constexpr int COUNT = sizeof...(R);
    const Vector none = Vector::each(0);
    Vector in[] = {(void(R), none)...}, forget[] = {(void(R), none)...}, cell[] = {(void(R), none)...},
           out[] = {(void(R), none)...};
    int64_t k = 0;
    if constexpr (COUNT == 1) {
        // A chain of additions would wait for each.
        Vector in2 = none, forget2 = none, cell2 = none, out2 = none;
        for (; k + 2 <= numbers; k += 2, w += 2 * WORD) {
            for (int64_t line = 0; line < 2 * WORD; line += 16) _mm_prefetch(w + AHEAD + line, _MM_HINT_T0);
            const Vector one = Vector::each(h[k]), two = Vector::each(h[k + 1]);
            in[0] = in[0].plus(one, Vector::load(w));
            forget[0] = forget[0].plus(one, Vector::load(w + UNITS));
            cell[0] = cell[0].plus(one, Vector::load(w + 2 * UNITS));
            out[0] = out[0].plus(one, Vector::load(w + 3 * UNITS));
            in2 = in2.plus(two, Vector::load(w + WORD));
            forget2 = forget2.plus(two, Vector::load(w + WORD + UNITS));
            cell2 = cell2.plus(two, Vector::load(w + WORD + 2 * UNITS));
            out2 = out2.plus(two, Vector::load(w + WORD + 3 * UNITS));
        }
        in[0] = in[0] + in2, forget[0] = forget[0] + forget2, cell[0] = cell[0] + cell2, out[0] = out[0] + out2;
    }
    for (; k < numbers; ++k, w += WORD) {
        for (int64_t line = 0; line < WORD; line += 16) _mm_prefetch(w + AHEAD + line, _MM_HINT_T0);
        const Vector of_in = Vector::load(w), of_forget = Vector::load(w + UNITS);
        const Vector of_cell = Vector::load(w + 2 * UNITS), of_out = Vector::load(w + 3 * UNITS);
        const float* each = h + k;
        ((in[R] = in[R].plus(Vector::each(each[R * numbers]), of_in),
          forget[R] = forget[R].plus(Vector::each(each[R * numbers]), of_forget),
          cell[R] = cell[R].plus(Vector::each(each[R * numbers]), of_cell),
          out[R] = out[R].plus(Vector::each(each[R * numbers]), of_out)), ...);
    }
    constexpr int64_t SIZE = Vector::SIZE;
    ((in[R].store(sums + R * GATES * SIZE), forget[R].store(sums + (R * GATES + 1) * SIZE),
      cell[R].store(sums + (R * GATES + 2) * SIZE), out[R].store(sums + (R * GATES + 3) * SIZE)), ...);
}
template <int Rows>
void products(const float* h, const float* w, int64_t numbers, float* sums) {
    multiply(h, w, numbers, sums, std::make_integer_sequence<int, Rows>());
}
template <int... R>
auto products_of(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&products<1>) functions[] = {products<R + 1>...};
    return functions[rows - 1];
}
// So many floats, of which there may be fewer than a vector has.
IN_PLACE Vector some(const float* from, int64_t count) {
    if (count == Vector::SIZE) return Vector::load(from);
    float every[Vector::SIZE] = {};
    std::copy_n(from, count, every);
    return Vector::load(every);
}
IN_PLACE void put(Vector from, float* to, int64_t count) {
    if (count == Vector::SIZE) return from.store(to);
    float every[Vector::SIZE];
    from.store(every);
    std::copy_n(every, count, to);
}
// One step of some rows and of up to 16 units, from `unit` on. gates: rows of (4, size), what they get of the
// inputs; h, c: the states before; new_h: the one after; c becomes it
void advance(const float* gates, const float* w, const float* h, float* c, float* new_h, int64_t rows,
             int64_t size, int64_t unit) {
    constexpr int64_t SIZE = Vector::SIZE;
    for (int64_t begin = 0; begin < UNITS && unit + begin < size; begin += SIZE) {
        const int64_t first = unit + begin, count = std::min(SIZE, size - first);
        for (int64_t row = 0; row < rows; row += ROWS) {
            const int64_t together = std::min<int64_t>(ROWS, rows - row);
            alignas(64) float sums[ROWS * GATES * SIZE];
            products_of(together, std::make_integer_sequence<int, ROWS>())(
                h + row * size, w + begin, size, sums);
            for (int64_t r = 0; r < together; ++r) {
                const float *from = gates + (row + r) * GATES * size + first, *its = sums + r * GATES * SIZE;
                const Vector in = (some(from, count) + Vector::load(its)).sigmoid();
                const Vector forget = (some(from + size, count) + Vector::load(its + SIZE)).sigmoid();
                const Vector cell = (some(from + 2 * size, count) + Vector::load(its + 2 * SIZE)).tanh();
                const Vector out = (some(from + 3 * size, count) + Vector::load(its + 3 * SIZE)).sigmoid();
                float* place = c + (row + r) * size + first;
                const Vector after = (forget * some(place, count)).plus(in, cell);
                put(after, place, count);
                put(out * after.tanh(), new_h + (row + r) * size + first, count);
            }
        }
    }
}
}
}
// As torch's own C functions: handles in, the handles of new tensors out, an error code returned. All are
// float32 and contiguous.
// gates: (steps, batch, 4 * size), what they get of the inputs; weight: (units / 16, size, 4, 16); hx, cx: (1,
// batch, size), the first states; results: (steps, batch, size), and the last states as the first
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_lstm(
        AtenTensorHandle gates, AtenTensorHandle weight, AtenTensorHandle hx, AtenTensorHandle cx,
        int64_t reverse, AtenTensorHandle* result, AtenTensorHandle* last_h, AtenTensorHandle* last_c) {
    const int32_t dtype = aoti_torch_dtype_float32(), device = aoti_torch_device_type_cpu();
    int64_t *sizes, *state_sizes;
    if (auto error = aoti_torch_get_sizes(gates, &sizes)) return error;
    if (auto error = aoti_torch_get_sizes(hx, &state_sizes)) return error;
    const int64_t steps = sizes[0], batch = sizes[1], size = state_sizes[2], state = batch * size;
    if (state_sizes[1] != batch) return AOTI_TORCH_FAILURE;
    if (auto error = aoti_torch_get_sizes(cx, &state_sizes)) return error;
    if (state_sizes[1] != batch || state_sizes[2] != size) return AOTI_TORCH_FAILURE;
    const int64_t strides[] = {state, size, 1}, made_sizes[][3] = {{steps, batch, size}, {1, batch, size}};
    AtenTensorHandle made[3];
    RAIIAtenTensorHandle owners[3];
    for (int each = 0; each < 3; ++each) {
        if (auto error = aoti_torch_empty_strided(3, made_sizes[each > 0], strides, dtype, device, 0, made + each))
            return error;
        owners[each] = RAIIAtenTensorHandle(made[each]);
    }
    void* at[7];
    const AtenTensorHandle all[] = {gates, weight, hx, cx, made[0], made[1], made[2]};
    for (int each = 0; each < 7; ++each)
        if (auto error = aoti_torch_get_data_ptr(all[each], at + each)) return error;
    const auto *from = static_cast<const float*>(at[0]), *w = static_cast<const float*>(at[1]);
    const auto *h = static_cast<const float*>(at[2]), *c = static_cast<const float*>(at[3]);
    auto *y = static_cast<float*>(at[4]), *hy = static_cast<float*>(at[5]), *cy = static_cast<float*>(at[6]);
    std::copy_n(c, state, cy);
    const int64_t blocks = (size + recurrent::UNITS - 1) / recurrent::UNITS;
    const int64_t worth = recurrent::GATES * state * size / recurrent::SHARE;
    const int64_t threads = std::max<int64_t>(1, std::min<int64_t>({omp_get_max_threads(), worth, blocks}));
    #pragma omp parallel num_threads(threads)
    for (int64_t step = 0; step < steps; ++step) {
        const int64_t place = reverse ? steps - 1 - step : step, before = reverse ? place + 1 : place - 1;
        const float* state_before = step ? y + before * state : h;
        #pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; ++block)
            recurrent::advance(
                from + place * state * recurrent::GATES, w + block * size * recurrent::WORD, state_before, cy,
                y + place * state, batch, size, block * recurrent::UNITS);
    }
    std::copy_n(steps ? y + (reverse ? 0 : steps - 1) * state : h, state, hy);
    *result = owners[0].release(), *last_h = owners[1].release(), *last_c = owners[2].release();
    return AOTI_TORCH_SUCCESS;
}
