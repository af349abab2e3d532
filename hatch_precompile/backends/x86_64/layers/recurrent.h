// All steps of an LSTM or a GRU layer, compiled into the library of a graph (recurrent.py).
//
// What the gates get of the inputs is there already. A step adds to it the product of the state before with
// the weights, which lie in the order in which they are read: for each 16 units, for each number of the
// state, what it is multiplied with for each gate. So a thread has all gates of a unit, and there is one wait
// in each step: for the others' part of the state. Each sum is taken in one order, whatever the number of
// threads.
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
#if defined(__AVX512F__)
extern "C" __m512 Sleef_expf16_u10(__m512);
extern "C" __m512 Sleef_tanhf16_u10(__m512);
#elif defined(__FMA__)
extern "C" __m256 Sleef_expf8_u10(__m256);
extern "C" __m256 Sleef_tanhf8_u10(__m256);
#endif
namespace {
namespace recurrent {
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1
constexpr int64_t UNITS = 16;
// Numbers of the state between what is multiplied and whose weights are asked for.
constexpr int64_t AHEAD = 16;
// Multiplications of a step from which a thread more makes up for waiting for it.
constexpr int64_t SHARE = 1 << 17;
#if defined(__AVX512F__)
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
    IN_PLACE Vector operator-(Vector other) const { return {_mm512_sub_ps(all, other.all)}; }
    IN_PLACE Vector operator*(Vector other) const { return {_mm512_mul_ps(all, other.all)}; }
    IN_PLACE Vector sigmoid() const {
        const __m512 one = _mm512_set1_ps(1), minus = _mm512_sub_ps(_mm512_setzero_ps(), all);
        return {_mm512_div_ps(one, _mm512_add_ps(one, Sleef_expf16_u10(minus)))};
    }
    IN_PLACE Vector tanh() const { return {Sleef_tanhf16_u10(all)}; }
};
#elif defined(__FMA__)
constexpr int ROWS = 2;
struct Vector {
    static constexpr int64_t SIZE = 8;
    __m256 all;
    IN_PLACE static Vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
    IN_PLACE static Vector each(float one) { return {_mm256_set1_ps(one)}; }
    IN_PLACE void store(float* to) const { _mm256_storeu_ps(to, all); }
    IN_PLACE Vector plus(Vector x, Vector w) const { return {_mm256_fmadd_ps(x.all, w.all, all)}; }
    IN_PLACE Vector operator+(Vector other) const { return {_mm256_add_ps(all, other.all)}; }
    IN_PLACE Vector operator-(Vector other) const { return {_mm256_sub_ps(all, other.all)}; }
    IN_PLACE Vector operator*(Vector other) const { return {_mm256_mul_ps(all, other.all)}; }
    IN_PLACE Vector sigmoid() const {
        const __m256 one = _mm256_set1_ps(1), minus = _mm256_sub_ps(_mm256_setzero_ps(), all);
        return {_mm256_div_ps(one, _mm256_add_ps(one, Sleef_expf8_u10(minus)))};
    }
    IN_PLACE Vector tanh() const { return {Sleef_tanhf8_u10(all)}; }
};
#else
constexpr int ROWS = 1;
struct Vector {
    static constexpr int64_t SIZE = 4;
    __m128 all;
    IN_PLACE static Vector load(const float* from) { return {_mm_loadu_ps(from)}; }
    IN_PLACE static Vector each(float one) { return {_mm_set1_ps(one)}; }
    IN_PLACE void store(float* to) const { _mm_storeu_ps(to, all); }
    IN_PLACE Vector plus(Vector x, Vector w) const { return {_mm_add_ps(_mm_mul_ps(x.all, w.all), all)}; }
    IN_PLACE Vector operator+(Vector other) const { return {_mm_add_ps(all, other.all)}; }
    IN_PLACE Vector operator-(Vector other) const { return {_mm_sub_ps(all, other.all)}; }
    IN_PLACE Vector operator*(Vector other) const { return {_mm_mul_ps(all, other.all)}; }
    template <typename Function>
    IN_PLACE Vector of_each(Function function) const {
        float every[SIZE];
        store(every);
        for (float& one : every) one = function(one);
        return load(every);
    }
    IN_PLACE Vector sigmoid() const {
        return of_each([](float x) { return 1 / (1 + std::exp(-x)); });
    }
    IN_PLACE Vector tanh() const {
        return of_each([](float x) { return std::tanh(x); });
    }
};
#endif
// What so many gates of some rows get of the state, for a vector of units: sums, (rows, gates, vector). h: rows
// of so many numbers; w: (numbers, gates, 16), from the first of these units on
template <int Gates, int... R>
IN_PLACE void multiply(const float* h, const float* w, int64_t numbers, float* sums,
                       std::integer_sequence<int, R...>) {
    static_assert(Gates == 3 || Gates == 4);
    constexpr int COUNT = sizeof...(R);
    constexpr int64_t WORD = Gates * UNITS, SIZE = Vector::SIZE;
    constexpr bool FOUR = Gates == 4;
    const Vector none = Vector::each(0);
    Vector first[] = {(void(R), none)...}, second[] = {(void(R), none)...}, third[] = {(void(R), none)...},
           fourth[] = {(void(R), none)...};
    int64_t k = 0;
    if constexpr (COUNT == 1) {
        // A chain of additions would wait for each.
        Vector first2 = none, second2 = none, third2 = none, fourth2 = none;
        for (; k + 2 <= numbers; k += 2, w += 2 * WORD) {
            for (int64_t line = 0; line < 2 * WORD; line += 16) _mm_prefetch(w + AHEAD * WORD + line, _MM_HINT_T0);
            const Vector one = Vector::each(h[k]), two = Vector::each(h[k + 1]);
            first[0] = first[0].plus(one, Vector::load(w));
            second[0] = second[0].plus(one, Vector::load(w + UNITS));
            third[0] = third[0].plus(one, Vector::load(w + 2 * UNITS));
            if constexpr (FOUR) fourth[0] = fourth[0].plus(one, Vector::load(w + 3 * UNITS));
            first2 = first2.plus(two, Vector::load(w + WORD));
            second2 = second2.plus(two, Vector::load(w + WORD + UNITS));
            third2 = third2.plus(two, Vector::load(w + WORD + 2 * UNITS));
            if constexpr (FOUR) fourth2 = fourth2.plus(two, Vector::load(w + WORD + 3 * UNITS));
        }
        first[0] = first[0] + first2, second[0] = second[0] + second2, third[0] = third[0] + third2;
        if constexpr (FOUR) fourth[0] = fourth[0] + fourth2;
    }
    for (; k < numbers; ++k, w += WORD) {
        for (int64_t line = 0; line < WORD; line += 16) _mm_prefetch(w + AHEAD * WORD + line, _MM_HINT_T0);
        const float* each = h + k;
        const Vector of_first = Vector::load(w), of_second = Vector::load(w + UNITS);
        const Vector of_third = Vector::load(w + 2 * UNITS);
        ((first[R] = first[R].plus(Vector::each(each[R * numbers]), of_first),
          second[R] = second[R].plus(Vector::each(each[R * numbers]), of_second),
          third[R] = third[R].plus(Vector::each(each[R * numbers]), of_third)), ...);
        if constexpr (FOUR) {
            const Vector of_fourth = Vector::load(w + 3 * UNITS);
            ((fourth[R] = fourth[R].plus(Vector::each(each[R * numbers]), of_fourth)), ...);
        }
    }
    ((first[R].store(sums + R * Gates * SIZE), second[R].store(sums + (R * Gates + 1) * SIZE),
      third[R].store(sums + (R * Gates + 2) * SIZE)), ...);
    if constexpr (FOUR) (fourth[R].store(sums + (R * Gates + 3) * SIZE), ...);
}
template <int Gates, int Rows>
void products(const float* h, const float* w, int64_t numbers, float* sums) {
    multiply<Gates>(h, w, numbers, sums, std::make_integer_sequence<int, Rows>());
}
template <int Gates, int... R>
auto products_of(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&products<Gates, 1>) functions[] = {products<Gates, R + 1>...};
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
// One step of some rows and of up to 16 units, from `unit` on. h: the states before; use(row, first, count, its)
// is told the row and the units that a vector is of, how many they are, and the sums of their gates.
template <int Gates, typename Use>
IN_PLACE void advance(const float* w, const float* h, int64_t rows, int64_t size, int64_t unit, Use use) {
    constexpr int64_t SIZE = Vector::SIZE;
    for (int64_t begin = 0; begin < UNITS && unit + begin < size; begin += SIZE) {
        const int64_t first = unit + begin, count = std::min(SIZE, size - first);
        for (int64_t row = 0; row < rows; row += ROWS) {
            const int64_t together = std::min<int64_t>(ROWS, rows - row);
            alignas(64) float sums[ROWS * Gates * SIZE];
            products_of<Gates>(together, std::make_integer_sequence<int, ROWS>())(
                h + row * size, w + begin, size, sums);
            for (int64_t r = 0; r < together; ++r) use(row + r, first, count, sums + r * Gates * SIZE);
        }
    }
}
// gates: rows of (4, size), what they get of the inputs; c: the cells before, which become those after;
// new_h: the states after
void advance_lstm(const float* gates, const float* w, const float* h, float* c, float* new_h, int64_t rows,
                  int64_t size, int64_t unit) {
    constexpr int64_t SIZE = Vector::SIZE;
    advance<4>(w, h, rows, size, unit, [=](int64_t row, int64_t first, int64_t count, const float* its) {
        const float* from = gates + row * 4 * size + first;
        const Vector in = (some(from, count) + Vector::load(its)).sigmoid();
        const Vector forget = (some(from + size, count) + Vector::load(its + SIZE)).sigmoid();
        const Vector cell = (some(from + 2 * size, count) + Vector::load(its + 2 * SIZE)).tanh();
        const Vector out = (some(from + 3 * size, count) + Vector::load(its + 3 * SIZE)).sigmoid();
        float* place = c + row * size + first;
        const Vector after = (forget * some(place, count)).plus(in, cell);
        put(after, place, count);
        put(out * after.tanh(), new_h + row * size + first, count);
    });
}
// gates: rows of (3, size), what they get of the inputs; bias: (size), what the last one gets beside the state
void advance_gru(const float* gates, const float* w, const float* bias, const float* h, float* new_h,
                 int64_t rows, int64_t size, int64_t unit) {
    constexpr int64_t SIZE = Vector::SIZE;
    advance<3>(w, h, rows, size, unit, [=](int64_t row, int64_t first, int64_t count, const float* its) {
        const float* from = gates + row * 3 * size + first;
        const Vector reset = (some(from, count) + Vector::load(its)).sigmoid();
        const Vector update = (some(from + size, count) + Vector::load(its + SIZE)).sigmoid();
        const Vector of_state = Vector::load(its + 2 * SIZE) + some(bias + first, count);
        const Vector made = some(from + 2 * size, count).plus(reset, of_state).tanh();
        const Vector before = some(h + row * size + first, count);
        put(made.plus(before - made, update), new_h + row * size + first, count);
    });
}
// The steps of a layer, one after the other, shared among threads by units. step(block, place, h) makes those of
// the states behind `place` steps that are of a block of units, from the states h
template <typename Step>
void all_steps(int64_t gates, int64_t steps, int64_t batch, int64_t size, bool reverse, const float* h,
               const float* y, Step step) {
    const int64_t state = batch * size, blocks = (size + UNITS - 1) / UNITS;
    const int64_t worth = gates * state * size / SHARE;
    const int64_t threads = std::max<int64_t>(1, std::min<int64_t>({omp_get_max_threads(), worth, blocks}));
    #pragma omp parallel num_threads(threads)
    for (int64_t number = 0; number < steps; ++number) {
        const int64_t place = reverse ? steps - 1 - number : number, before = reverse ? place + 1 : place - 1;
        const float* state_before = number ? y + before * state : h;
        #pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; ++block) step(block, place, state_before);
    }
}
// Where the last states of a layer are: in its output, or, of no steps, the first ones.
IN_PLACE const float* last_of(int64_t steps, int64_t state, bool reverse, const float* h, const float* y) {
    return steps ? y + (reverse ? 0 : steps - 1) * state : h;
}
// New tensors: the output, (steps, batch, size), and so many states, (1, batch, size).
template <int States>
struct Results {
    AtenTensorHandle made[1 + States];
    RAIIAtenTensorHandle owners[1 + States];
    AOTITorchError make(int64_t steps, int64_t batch, int64_t size) {
        const int32_t dtype = aoti_torch_dtype_float32(), device = aoti_torch_device_type_cpu();
        const int64_t strides[] = {batch * size, size, 1}, sizes[][3] = {{steps, batch, size}, {1, batch, size}};
        for (int each = 0; each <= States; ++each) {
            if (auto error = aoti_torch_empty_strided(
                    3, sizes[each > 0], strides, dtype, device, 0, made + each)) return error;
            owners[each] = RAIIAtenTensorHandle(made[each]);
        }
        return AOTI_TORCH_SUCCESS;
    }
};
}
}
// As torch's own C functions: handles in, the handles of new tensors out, an error code returned. All are
// float32 and contiguous.
// gates: (steps, batch, 4 * size), what they get of the inputs; weight: (units / 16, size, 4, 16); hx, cx: (1,
// batch, size), the first states; results: (steps, batch, size), and the last states as the first
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_lstm(
        AtenTensorHandle gates, AtenTensorHandle weight, AtenTensorHandle hx, AtenTensorHandle cx,
        int64_t reverse, AtenTensorHandle* result, AtenTensorHandle* last_h, AtenTensorHandle* last_c) {
    int64_t *sizes, *state_sizes;
    if (auto error = aoti_torch_get_sizes(gates, &sizes)) return error;
    if (auto error = aoti_torch_get_sizes(hx, &state_sizes)) return error;
    const int64_t steps = sizes[0], batch = sizes[1], size = state_sizes[2], state = batch * size;
    if (state_sizes[1] != batch) return AOTI_TORCH_FAILURE;
    if (auto error = aoti_torch_get_sizes(cx, &state_sizes)) return error;
    if (state_sizes[1] != batch || state_sizes[2] != size) return AOTI_TORCH_FAILURE;
    recurrent::Results<2> results;
    if (auto error = results.make(steps, batch, size)) return error;
    void* at[7];
    const AtenTensorHandle all[] = {gates, weight, hx, cx, results.made[0], results.made[1], results.made[2]};
    for (int each = 0; each < 7; ++each)
        if (auto error = aoti_torch_get_data_ptr(all[each], at + each)) return error;
    const auto *from = static_cast<const float*>(at[0]), *w = static_cast<const float*>(at[1]);
    const auto *h = static_cast<const float*>(at[2]), *c = static_cast<const float*>(at[3]);
    auto *y = static_cast<float*>(at[4]), *hy = static_cast<float*>(at[5]), *cy = static_cast<float*>(at[6]);
    std::copy_n(c, state, cy);
    recurrent::all_steps(
        4, steps, batch, size, reverse, h, y, [=](int64_t block, int64_t place, const float* before) {
            recurrent::advance_lstm(
                from + place * state * 4, w + block * size * 4 * recurrent::UNITS, before, cy,
                y + place * state, batch, size, block * recurrent::UNITS);
        });
    std::copy_n(recurrent::last_of(steps, state, reverse, h, y), state, hy);
    *result = results.owners[0].release(), *last_h = results.owners[1].release();
    *last_c = results.owners[2].release();
    return AOTI_TORCH_SUCCESS;
}
// gates: (steps, batch, 3 * size), what they get of the inputs; weight: (units / 16, size, 3, 16); bias: (size),
// of the new gate's part of the state; hx: (1, batch, size), the first state; results: (steps, batch, size), and
// the last state as the first
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_gru(
        AtenTensorHandle gates, AtenTensorHandle weight, AtenTensorHandle bias, AtenTensorHandle hx,
        int64_t reverse, AtenTensorHandle* result, AtenTensorHandle* last_h) {
    int64_t *sizes, *state_sizes;
    if (auto error = aoti_torch_get_sizes(gates, &sizes)) return error;
    if (auto error = aoti_torch_get_sizes(hx, &state_sizes)) return error;
    const int64_t steps = sizes[0], batch = sizes[1], size = state_sizes[2], state = batch * size;
    if (state_sizes[1] != batch) return AOTI_TORCH_FAILURE;
    recurrent::Results<1> results;
    if (auto error = results.make(steps, batch, size)) return error;
    void* at[6];
    const AtenTensorHandle all[] = {gates, weight, bias, hx, results.made[0], results.made[1]};
    for (int each = 0; each < 6; ++each)
        if (auto error = aoti_torch_get_data_ptr(all[each], at + each)) return error;
    const auto *from = static_cast<const float*>(at[0]), *w = static_cast<const float*>(at[1]);
    const auto *b = static_cast<const float*>(at[2]), *h = static_cast<const float*>(at[3]);
    auto *y = static_cast<float*>(at[4]), *hy = static_cast<float*>(at[5]);
    recurrent::all_steps(
        3, steps, batch, size, reverse, h, y, [=](int64_t block, int64_t place, const float* before) {
            recurrent::advance_gru(
                from + place * state * 3, w + block * size * 3 * recurrent::UNITS, b, before,
                y + place * state, batch, size, block * recurrent::UNITS);
        });
    std::copy_n(recurrent::last_of(steps, state, reverse, h, y), state, hy);
    *result = results.owners[0].release(), *last_h = results.owners[1].release();
    return AOTI_TORCH_SUCCESS;
}
