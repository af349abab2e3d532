// Products of rows with weights in panels, compiled into the library of a graph (panels.py).
//
// Rows are read by words of four bytes: a float32, two bfloat16, four int8 or uint8, or two int16 that
// those were widened to, whose products are exact without VNNI. Weights: for each panel, for each word of a
// row, what each column multiplies it with. The rows are copied: so those which are read together do not
// fall on the same lines of a cache, and their places are known when this is compiled. Each sum is taken in
// one order, whatever the number of threads.
#include <cpuid.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>
namespace {
namespace panels {
constexpr int64_t COLUMNS = 16, CHUNK = 256, STRIDE = CHUNK + 16;
// Words of a panel between what a single row is multiplied with and what is asked for.
constexpr int64_t AHEAD = 64;
// What a thread multiplies with a panel at a time, in parts of as many rows as there are sums in registers.
constexpr int64_t PARTS = 12;
// Words of weights, times rows, from which a thread more makes up for starting it.
constexpr int64_t SHARE = 1 << 17;
#define IN_PLACE __attribute__((always_inline)) inline  // the calling code is compiled at -O1

// Words of a row, made of its items, of which there may be fewer: the rest is zeros. As they lie in memory.
template <class Item, class Word>
void copied(const Item* from, int64_t items, Word* to, int64_t words) {
    auto* bytes = reinterpret_cast<char*>(to);
    std::memcpy(bytes, from, items * sizeof(Item));
    std::memset(bytes + items * sizeof(Item), 0, words * sizeof(Word) - items * sizeof(Item));
}
// The same, each int8 or uint8 as an int16.
template <class Item>
void widened(const Item* from, int64_t items, int32_t* to, int64_t words) {
    auto* wide = reinterpret_cast<char*>(to);
    to[words - 1] = 0;
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
// Rows whose sums are in registers together, with one panel, and with two, which need each word of a row once
// for both: 0, they are too few for that.
#ifdef __AVX512BW__
constexpr int64_t ROWS = 16, ROWS_BY_TWO = 14;
struct Floats {
    using Item = float;
    using Word = float;
    using Sum = float;
    using Result = float;
    static constexpr int64_t ITEMS = 1, WEIGHTS = COLUMNS;
    __m512 all;
    IN_PLACE static Floats weights(const Word* from) { return load(from); }
    IN_PLACE static Floats load(const Word* from) { return {_mm512_loadu_ps(from)}; }
    IN_PLACE void store(Word* to) const { _mm512_storeu_ps(to, all); }
    IN_PLACE Floats plus(Word x, Floats w) const {
        return {_mm512_fmadd_ps(_mm512_set1_ps(x), w.all, all)};
    }
    IN_PLACE Floats operator+(Floats other) const { return {_mm512_add_ps(all, other.all)}; }
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        copied(from, items, to, words);
    }
};
// The upper half of a float32.
struct BFloat16 {
    uint16_t bits;
};
IN_PLACE __m256i rounded(__m512 numbers) {
    __m256i halves;
    // As words, here and below, because the compiler may not have been told of these instructions.
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(numbers));
    return halves;
}
// Sums of float32. A word of a row is two bfloat16, one of the weights each column's two.
template <class Number>
struct Halves {
    using Item = Number;
    using Word = int32_t;
    using Sum = float;
    using Result = Number;
    static constexpr int64_t ITEMS = 2, WEIGHTS = COLUMNS;
    __m512 all;
    IN_PLACE static Halves weights(const Word* from) { return {_mm512_loadu_ps(from)}; }
    IN_PLACE static Halves load(const Sum* from) { return {_mm512_loadu_ps(from)}; }
    IN_PLACE void store(float* to) const { _mm512_storeu_ps(to, all); }
    IN_PLACE void store(BFloat16* to) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded(all));
    }
    IN_PLACE Halves plus(Word x, Halves w) const {
        __m512 sum = all;
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32(x)), "v"(w.all));
        return {sum};
    }
    IN_PLACE Halves operator+(Halves other) const { return {_mm512_add_ps(all, other.all)}; }
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        if constexpr (std::is_same_v<Item, BFloat16>) {
            copied(from, items, to, words);
        } else {
            for (; words > 0; words -= 8, items -= COLUMNS, from += COLUMNS, to += 8) {
                const auto there = static_cast<__mmask16>((1u << std::clamp<int64_t>(items, 0, COLUMNS)) - 1);
                const __m256i halves = rounded(_mm512_maskz_loadu_ps(there, from));
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
            }
        }
    }
    template <int C, int A, int B>
    IN_PLACE static void plus_tiles() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
    }
};
// Sums of int32. A word of a row is four of its numbers, one of the weights four int8.
template <class Number>
struct Integers {
    using Item = Number;
    using Word = int32_t;
    using Sum = int32_t;
    using Result = int32_t;
    static constexpr int64_t ITEMS = 4, WEIGHTS = COLUMNS;
    __m512i all;
    IN_PLACE static Integers weights(const Word* from) { return load(from); }
    IN_PLACE static Integers load(const Word* from) { return {_mm512_loadu_si512(from)}; }
    IN_PLACE void store(Word* to) const { _mm512_storeu_si512(to, all); }
    // x: of uint8
    IN_PLACE Integers plus(Word x, Integers w) const {
        __m512i sum = all;
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32(x)), "v"(w.all));
        return {sum};
    }
    IN_PLACE Integers operator+(Integers other) const { return {_mm512_add_epi32(all, other.all)}; }
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        copied(from, items, to, words);
    }
    template <int C, int A, int B>
    IN_PLACE static void plus_tiles() {
        if constexpr (std::is_signed_v<Number>)
            asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
        else
            asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
    }
};
// Sums of int32. A word of a row is two int16, one of the weights two columns' two int8.
template <class Numbers>
struct Pairs {
    using Item = Numbers;
    using Word = int32_t;
    using Sum = int32_t;
    using Result = int32_t;
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
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        widened(from, items, to, words);
    }
};
#else
constexpr int64_t ROWS = 6, ROWS_BY_TWO = 0;
struct Floats {
    using Item = float;
    using Word = float;
    using Sum = float;
    using Result = float;
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
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        copied(from, items, to, words);
    }
};
// Sums of int32. A word of a row is two int16, one of the weights two columns' two int8.
template <class Numbers>
struct Pairs {
    using Item = Numbers;
    using Word = int32_t;
    using Sum = int32_t;
    using Result = int32_t;
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
    static void copy(const Item* from, int64_t items, Word* to, int64_t words) {
        widened(from, items, to, words);
    }
};
#endif
// Whether its weights lie as tiles take them, filled up to whole ones.
template <class Panel>
constexpr bool HAS_TILES = false;
// Whether without tiles its rows are multiplied as uint8: 128 more in each number, and what that adds is
// taken away.
template <class Panel>
constexpr bool IS_LIFTED = false;
#ifdef __AVX512BW__
template <class Number>
constexpr bool HAS_TILES<Halves<Number>> = true;
template <class Number>
constexpr bool HAS_TILES<Integers<Number>> = true;
template <>
constexpr bool IS_LIFTED<Integers<int8_t>> = true;
#endif
template <class Panel>
constexpr int64_t WORDS_AT_ONCE = HAS_TILES<Panel> ? 16 : 1;
constexpr int32_t LIFT = static_cast<int32_t>(0x80808080);
// Whether words of a row lie in memory as its items do.
template <class Panel>
constexpr bool AS_THEY_LIE =
    Panel::ITEMS * sizeof(typename Panel::Item) == sizeof(typename Panel::Word) && !IS_LIFTED<Panel>;
IN_PLACE float number(float one) { return one; }
IN_PLACE int32_t number(int32_t one) { return one; }
#ifdef __AVX512BW__
IN_PLACE float number(BFloat16 one) {
    const uint32_t bits = uint32_t(one.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}
#endif
// A panel's result for one row, of which there may be fewer columns.
template <class Panel, class Result = typename Panel::Result>
IN_PLACE void finish(Panel sums, Result* out, int64_t columns) {
    if (columns == COLUMNS) {
        sums.store(out);
        return;
    }
    Result every[COLUMNS];
    sums.store(every);
    std::copy_n(every, columns, out);
}
// What is asked for while panels are multiplied: the next ones. Each part of the rows asks for its share, so
// that it comes as evenly as it is needed.
struct Next {
    const char* at;
    int64_t step;
};
template <class Panel, int... R, class Result = typename Panel::Result>
IN_PLACE void store_rows(const Panel* sums, Result* out, int64_t n, int64_t columns,
                         std::integer_sequence<int, R...>) {
    // No sum is needed after a call: what is would not be kept in a register.
    if (columns == COLUMNS) {
        (sums[R].store(out + R * n), ...);
        return;
    }
    Result every[sizeof...(R)][COLUMNS];
    (sums[R].store(every[R]), ...);
    for (const auto& of_a_row : every) out = std::copy_n(of_a_row, columns, out) + n - columns;
}
template <class Panel, int... R, class Word = typename Panel::Word, class Sum = typename Panel::Sum>
IN_PLACE void block_of(const Word* x, const Word* w, int64_t, const Sum* first, typename Panel::Result* out,
                       int64_t words, int64_t n, int64_t columns, Next next,
                       std::integral_constant<int, 1>, std::integer_sequence<int, R...> rows) {
    // Where panels come in twos, a single one is the only one of few rows, and near.
    constexpr auto hint = ROWS_BY_TWO > 0 ? _MM_HINT_T0 : _MM_HINT_T1;
    Panel sums[] = {(void(R), Panel::load(first))...};
    for (; words > 0; words -= CHUNK, x += ROWS * STRIDE) {
        const Word *each = x, *end = w + Panel::WEIGHTS * std::min(words, CHUNK);
        for (; w < end; w += Panel::WEIGHTS, ++each, next.at += next.step) {
            _mm_prefetch(next.at, hint);
            const Panel weights = Panel::weights(w);
            ((sums[R] = sums[R].plus(each[R * STRIDE], weights)), ...);
        }
    }
    store_rows(sums, out, n, columns, rows);
}
template <class Panel, int... R, class Word = typename Panel::Word, class Sum = typename Panel::Sum>
IN_PLACE void block_of(const Word* x, const Word* w, int64_t panel_size, const Sum* first,
                       typename Panel::Result* out, int64_t words, int64_t n, int64_t columns, Next next,
                       std::integral_constant<int, 2>, std::integer_sequence<int, R...> rows) {
    Panel left[] = {(void(R), Panel::load(first))...}, right[] = {(void(R), Panel::load(first + COLUMNS))...};
    for (; words > 0; words -= CHUNK, x += ROWS * STRIDE) {
        const Word *each = x, *end = w + Panel::WEIGHTS * std::min(words, CHUNK);
        for (; w < end; w += Panel::WEIGHTS, ++each, next.at += next.step) {
            _mm_prefetch(next.at, _MM_HINT_T1);
            _mm_prefetch(next.at + panel_size * sizeof(Word), _MM_HINT_T1);
            const Panel one = Panel::weights(w), two = Panel::weights(w + panel_size);
            ((left[R] = left[R].plus(each[R * STRIDE], one),
              right[R] = right[R].plus(each[R * STRIDE], two)), ...);
        }
    }
    store_rows(left, out, n, COLUMNS, rows);
    store_rows(right, out + COLUMNS, n, columns, rows);
}
// The same for any number of panels, one or two, and of rows.
template <class Panel, int Panels, int Rows, class Word = typename Panel::Word>
void block(const Word* x, const Word* w, int64_t panel_size, const typename Panel::Sum* first,
           typename Panel::Result* out, int64_t words, int64_t n, int64_t columns, Next next) {
    block_of<Panel>(x, w, panel_size, first, out, words, n, columns, next,
                    std::integral_constant<int, Panels>(), std::make_integer_sequence<int, Rows>());
}
template <class Panel, int Panels, int... R>
auto block_with(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr decltype(&block<Panel, 1, 1>) blocks[] = {block<Panel, Panels, R + 1>...};
    return blocks[rows - 1];
}
template <class Panel>
auto block_for(int64_t panels, int64_t rows) {
    if constexpr (ROWS_BY_TWO > 0)
        if (panels == 2) return block_with<Panel, 2>(rows, std::make_integer_sequence<int, ROWS_BY_TWO>());
    return block_with<Panel, 1>(rows, std::make_integer_sequence<int, ROWS>());
}
// One row, x(i) its words: a chain of additions would wait for each, so there are four.
template <class Panel, class Words, class Word = typename Panel::Word, class Sum = typename Panel::Sum>
IN_PLACE Panel row(Words x, const Word* w, const Sum* first, int64_t words) {
    constexpr Sum none[COLUMNS] = {};
    Panel one = Panel::load(first), two = Panel::load(none), three = two, four = two;
    constexpr int64_t step = Panel::WEIGHTS;
    int64_t i = 0;
    for (; i + 4 <= words; i += 4, w += 4 * step) {
        const char* ahead = reinterpret_cast<const char*>(w + step * AHEAD);
        _mm_prefetch(ahead, _MM_HINT_T0);
        _mm_prefetch(ahead + 4 * step, _MM_HINT_T0);
        _mm_prefetch(ahead + 8 * step, _MM_HINT_T0);
        _mm_prefetch(ahead + 12 * step, _MM_HINT_T0);
        one = one.plus(x(i), Panel::weights(w));
        two = two.plus(x(i + 1), Panel::weights(w + step));
        three = three.plus(x(i + 2), Panel::weights(w + 2 * step));
        four = four.plus(x(i + 3), Panel::weights(w + 3 * step));
    }
    for (; i < words; ++i, w += step) one = one.plus(x(i), Panel::weights(w));
    return (one + two) + (three + four);
}
#ifdef __AVX512BW__
// Tiles are registers of 16 rows of 64 bytes: of sums, of a part's words, of a panel's. An instruction
// multiplies two of them, which it knows by number. Linux gives them to a process that asks.
bool are_there_tiles() {
    unsigned a, b, c, d;
    constexpr unsigned multiplies_bfloat16 = 1u << 22, has_tiles = 1u << 24, multiplies_int8 = 1u << 25;
    constexpr unsigned all = multiplies_bfloat16 | has_tiles | multiplies_int8;
    constexpr long request = 0x1023, tile_data = 18;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & all) == all &&
           syscall(SYS_arch_prctl, request, tile_data) == 0;
}
template <int T>
IN_PLACE void clear_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
IN_PLACE void load_tile(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
IN_PLACE void store_tile(void* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1)" ::"r"(to), "r"(int64_t(64)), "i"(T) : "memory");
}
// While it lives, this thread has tiles of which those of sums and of words have so many rows.
class Tiles {
public:
    explicit Tiles(int64_t rows) {
        struct alignas(64) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } shapes;
        std::fill_n(shapes.bytes, 8, 64);
        std::fill_n(shapes.rows, 8, 16);
        if (rows < ROWS) std::fill_n(shapes.rows, 5, rows);
        asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
    ~Tiles() { asm volatile("tilerelease"); }
    Tiles(const Tiles&) = delete;
};
// One part of rows or two, with one panel, two or, of one part, four. The sums of part p and panel q come
// into sums[p + Parts * q].
template <class Panel, int Parts, int Panels, class Word = typename Panel::Word>
void tiles_of(const Word* x, int64_t part_size, const Word* w, int64_t panel_size, int64_t words,
              typename Panel::Sum (*sums)[ROWS][COLUMNS], Next next) {
    constexpr int64_t step = WORDS_AT_ONCE<Panel> * COLUMNS, row_bytes = STRIDE * sizeof(Word), line = 64;
    clear_tile<0>();
    if constexpr (Parts * Panels > 1) clear_tile<1>();
    if constexpr (Parts * Panels > 2) clear_tile<2>(), clear_tile<3>();
    for (; words > 0; words -= CHUNK, x += ROWS * STRIDE) {
        const Word *each = x, *end = w + COLUMNS * std::min(words, CHUNK);
        for (; w < end; w += step, each += WORDS_AT_ONCE<Panel>) {
            for (const char* end_of_it = next.at + next.step; next.at < end_of_it; next.at += line) {
                _mm_prefetch(next.at, _MM_HINT_T1);
                _mm_prefetch(next.at + panel_size * sizeof(Word), _MM_HINT_T1);
            }
            load_tile<4>(each, row_bytes);
            load_tile<6>(w, 64);
            Panel::template plus_tiles<0, 4, 6>();
            if constexpr (Parts == 2) {
                load_tile<5>(each + part_size, row_bytes);
                Panel::template plus_tiles<1, 5, 6>();
            }
            if constexpr (Panels > 1) {
                load_tile<7>(w + panel_size, 64);
                Panel::template plus_tiles<Parts, 4, 7>();
                if constexpr (Parts == 2) Panel::template plus_tiles<3, 5, 7>();
            }
            if constexpr (Panels > 2) {
                load_tile<6>(w + 2 * panel_size, 64);
                Panel::template plus_tiles<2, 4, 6>();
                load_tile<7>(w + 3 * panel_size, 64);
                Panel::template plus_tiles<3, 4, 7>();
            }
        }
    }
    store_tile<0>(sums[0]);
    if constexpr (Parts * Panels > 1) store_tile<1>(sums[1]);
    if constexpr (Parts * Panels > 2) store_tile<2>(sums[2]), store_tile<3>(sums[3]);
}
#endif
template <class Panel>
bool has_tiles() {
#ifdef __AVX512BW__
    if constexpr (HAS_TILES<Panel>) {
        static const bool there = are_there_tiles();
        return there && !precompiled_otherwise;
    }
#endif
    return false;
}
// A product and what it is made of. x: m rows of k items; w: panels; bias: n or null; out: (m, n); copy: what
// the rows are copied to
template <class Panel>
struct Product {
    using Item = typename Panel::Item;
    using Word = typename Panel::Word;
    using Sum = typename Panel::Sum;
    using Result = typename Panel::Result;
    const Item* x;
    const Word* w;
    const Result* bias;
    Result* out;
    const int64_t m, k, n;
    const bool tiles;
    const int64_t words = filled((k + Panel::ITEMS - 1) / Panel::ITEMS);
    const int64_t panels = (n + COLUMNS - 1) / COLUMNS, chunks = (words + CHUNK - 1) / CHUNK;
    const bool by_two = !tiles && ROWS_BY_TWO && m > ROWS;
    const int64_t rows_at_once = by_two ? ROWS_BY_TWO : ROWS;
    const int64_t parts = (m + rows_at_once - 1) / rows_at_once, part_size = chunks * ROWS * STRIDE;
    const int64_t groups = (parts + PARTS - 1) / PARTS;
    const bool one = m == 1 && !tiles, in_place = one && AS_THEY_LIE<Panel> && k == words * Panel::ITEMS;
    const bool share = m * n * words / omp_get_max_threads() >= SHARE;

    static int64_t filled(int64_t count) {
        constexpr int64_t whole = WORDS_AT_ONCE<Panel>;
        return (count + whole - 1) / whole * whole;
    }
    int64_t copy_size() const { return in_place ? 0 : one ? words : parts * part_size; }
    // Parts are of equal size for registers. Tiles take as long for fewer rows.
    int64_t first_of(int64_t part) const { return tiles ? std::min(m, part * ROWS) : m * part / parts; }
    int64_t columns_of(int64_t panel) const { return std::min(COLUMNS, n - panel * COLUMNS); }
    const Word* weights_of(int64_t panel) const { return w + panel * Panel::WEIGHTS * words; }

    void copy_row(const Item* from, int64_t items, Word* to, int64_t count) const {
        Panel::copy(from, items, to, count);
        if constexpr (IS_LIFTED<Panel>)
            for (int64_t i = 0; !tiles && i < count; ++i) to[i] ^= LIFT;
    }
    void copy_rows(Word* copy) const {
        if (in_place) return;
        if (one) return copy_row(x, k, copy, words);
        #pragma omp parallel for schedule(static) if (share)
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t begin = first_of(part), end = first_of(part + 1);
            for (int64_t r = begin; r < end; ++r)
                for (int64_t chunk = 0; chunk < chunks; ++chunk) {
                    Word* to = copy + part * part_size + (chunk * ROWS + r - begin) * STRIDE;
                    const int64_t from = chunk * CHUNK * Panel::ITEMS;
                    copy_row(x + r * k + from, std::min(CHUNK * Panel::ITEMS, k - from), to,
                             std::min(CHUNK, words - chunk * CHUNK));
                }
        }
    }
    // What the sums of a panel begin with.
    IN_PLACE void start(int64_t panel, Sum (&first)[COLUMNS]) const {
        std::fill_n(first, COLUMNS, Sum());
        for (int64_t c = 0; bias && c < columns_of(panel); ++c) first[c] = number(bias[panel * COLUMNS + c]);
        if constexpr (IS_LIFTED<Panel>) {
            if (tiles) return;
            Sum lifted[COLUMNS];
            row<Panel>([](int64_t) { return LIFT; }, weights_of(panel), first, words).store(lifted);
            for (int64_t c = 0; c < COLUMNS; ++c) first[c] -= lifted[c];
        }
    }
    void by_registers(const Word* copy) const {
        const int64_t at_once = by_two ? 2 : 1, times = (panels + at_once - 1) / at_once;
        #pragma omp parallel for schedule(static) if (share)
        for (int64_t number = 0; number < groups * times; ++number) {
            const int64_t group = number / times, panel = number % times * at_once;
            const int64_t count = std::min(at_once, panels - panel);
            Sum first[2][COLUMNS];
            for (int64_t q = 0; q < count; ++q) start(panel + q, first[q]);
            if (one) {
                const Word* its = in_place ? reinterpret_cast<const Word*>(x) : copy;
                const auto word = [its](int64_t i) { return its[i]; };
                const Panel sums = row<Panel>(word, weights_of(panel), first[0], words);
                finish(sums, out + panel * COLUMNS, columns_of(panel));
                continue;
            }
            const int64_t begin = parts * group / groups, end = parts * (group + 1) / groups;
            for (int64_t part = begin; part < end; ++part) {
                const Next next =
                    parts == 1 ? soon_of(panel) : next_of(panel + at_once, part - begin, end - begin);
                with_registers(copy, part, panel, count, first[0], next);
            }
        }
    }
    static constexpr int64_t word_size = Panel::WEIGHTS * sizeof(Word);
    // The share that one of so many parts has of the panel that comes next, for each step of so many words.
    Next next_of(int64_t panel, int64_t part, int64_t of_parts, int64_t step = 1) const {
        const auto* from = reinterpret_cast<const char*>(weights_of(panel));
        return {from + part * words * word_size / of_parts, step * word_size / of_parts};
    }
    Next soon_of(int64_t panel) const {
        return {reinterpret_cast<const char*>(weights_of(panel)) + AHEAD * word_size, word_size};
    }
    // One part and one panel or two.
    void with_registers(const Word* copy, int64_t part, int64_t panel, int64_t count, const Sum* first,
                        Next next) const {
        const int64_t begin = first_of(part), rows = first_of(part + 1) - begin;
        const auto multiply = block_for<Panel>(count, rows);
        multiply(copy + part * part_size, weights_of(panel), Panel::WEIGHTS * words, first,
                 out + begin * n + panel * COLUMNS, words, n, columns_of(panel + count - 1), next);
    }
#ifdef __AVX512BW__
    // As many panels at once as there are tiles for their sums, as long as there are some for each thread.
    void by_tiles(const Word* copy) const {
        const int64_t threads = share ? omp_get_max_threads() : 1;
        int64_t at_once = parts > 1 ? 2 : 4;
        while (at_once > 1 && groups * panels < at_once * threads) at_once /= 2;
        const int64_t times = (panels + at_once - 1) / at_once;
        #pragma omp parallel if (share)
        {
            const Tiles configured(m);
            #pragma omp for schedule(static) nowait
            for (int64_t number = 0; number < groups * times; ++number) {
                const int64_t group = number / times, panel = number % times * at_once;
                const int64_t begin = parts * group / groups, end = parts * (group + 1) / groups;
                for (int64_t part = begin; part < end; part += 2) {
                    const int64_t count = std::min<int64_t>(2, end - part);
                    if (panel + at_once <= panels) {
                        const int64_t passes = (end - begin + 1) / 2, pass = (part - begin) / 2;
                        Next next = {};
                        if (at_once == 2) next = next_of(panel + 2, pass, passes, WORDS_AT_ONCE<Panel>);
                        with_tiles(copy, part, count, panel, at_once, next);
                        continue;
                    }
                    for (int64_t last = panel; last < panels; ++last)
                        with_tiles(copy, part, count, last, 1, {});
                }
            }
        }
    }
    // One part or two, and so many panels.
    void with_tiles(const Word* copy, int64_t part, int64_t count, int64_t panel, int64_t at_once,
                    Next next) const {
        static constexpr decltype(&tiles_of<Panel, 1, 1>) functions[][3] = {
            {tiles_of<Panel, 1, 1>, tiles_of<Panel, 1, 2>, tiles_of<Panel, 1, 4>},
            {tiles_of<Panel, 2, 1>, tiles_of<Panel, 2, 2>},
        };
        alignas(64) Sum sums[4][ROWS][COLUMNS];
        functions[count - 1][at_once / 2](
            copy + part * part_size, part_size, weights_of(panel), words * COLUMNS, words, sums, next);
        for (int64_t q = 0; q < at_once; ++q) {
            Sum first[COLUMNS];
            start(panel + q, first);
            const Panel added = Panel::load(first);
            for (int64_t p = 0; p < count; ++p) {
                const int64_t begin = first_of(part + p), rows = first_of(part + p + 1) - begin;
                Result* to = out + begin * n + (panel + q) * COLUMNS;
                for (int64_t r = 0; r < rows; ++r)
                    finish(Panel::load(sums[p + count * q][r]) + added, to + r * n, columns_of(panel + q));
            }
        }
    }
#endif
    void multiply(const Word* copy) const {
#ifdef __AVX512BW__
        if constexpr (HAS_TILES<Panel>)
            if (tiles) return by_tiles(copy);
#endif
        by_registers(copy);
    }
};
template <class Panel>
AOTITorchError layer(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t n,
                     int32_t dtype, AtenTensorHandle* result) {
    using Result = typename Panel::Result;
    using Word = typename Panel::Word;
    const int32_t device = aoti_torch_device_type_cpu(), of_words = aoti_torch_dtype_int32();
    int64_t* sizes;
    void *x, *w, *added = nullptr, *out, *copy;
    if (auto error = aoti_torch_get_sizes(input, &sizes)) return error;
    const int64_t m = sizes[0], k = sizes[1], made_sizes[] = {m, n}, made_strides[] = {n, 1};
    AtenTensorHandle made, copied;
    if (auto error = aoti_torch_empty_strided(2, made_sizes, made_strides, dtype, device, 0, &made))
        return error;
    RAIIAtenTensorHandle owner(made);
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = bias ? aoti_torch_get_data_ptr(bias, &added) : AOTI_TORCH_SUCCESS) return error;
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    const Product<Panel> product{
        static_cast<const typename Panel::Item*>(x), static_cast<const Word*>(w),
        static_cast<const Result*>(added), static_cast<Result*>(out), m, k, n, has_tiles<Panel>()};
    const int64_t copy_size[] = {product.copy_size()}, copy_stride[] = {1};
    if (auto error = aoti_torch_empty_strided(1, copy_size, copy_stride, of_words, device, 0, &copied))
        return error;
    RAIIAtenTensorHandle copy_owner(copied);
    if (auto error = aoti_torch_get_data_ptr(copy_owner, &copy)) return error;
    product.copy_rows(static_cast<Word*>(copy));
    product.multiply(static_cast<const Word*>(copy));
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
// One for each kind of input: what is not called is not compiled. input: (m, k), contiguous
#define PRECOMPILED_PANELS_OF_INTEGERS(NAME, PANEL) \
    [[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels_##NAME( \
            AtenTensorHandle input, AtenTensorHandle weight, int64_t n, AtenTensorHandle* result) { \
        return panels::layer<panels::PANEL>(input, weight, nullptr, n, aoti_torch_dtype_int32(), result); \
    }
// weight: (panels, words, 16, 2) of int8; result: int32
PRECOMPILED_PANELS_OF_INTEGERS(int8_by_2, Pairs<int8_t>)
PRECOMPILED_PANELS_OF_INTEGERS(uint8_by_2, Pairs<uint8_t>)
#ifdef __AVX512BW__
// weight: (panels, words, 16, 4) of int8; result: int32
PRECOMPILED_PANELS_OF_INTEGERS(int8_by_4, Integers<int8_t>)
PRECOMPILED_PANELS_OF_INTEGERS(uint8_by_4, Integers<uint8_t>)
// weight: (panels, words, 16, 2) of bfloat16; bias: (n), as input, or null; result: as input
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels_float32_by_2(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t n,
        AtenTensorHandle* result) {
    const int32_t dtype = aoti_torch_dtype_float32();
    return panels::layer<panels::Halves<float>>(input, weight, bias, n, dtype, result);
}
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_panels_bfloat16_by_2(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t n,
        AtenTensorHandle* result) {
    const int32_t dtype = aoti_torch_dtype_bfloat16();
    return panels::layer<panels::Halves<panels::BFloat16>>(input, weight, bias, n, dtype, result);
}
#endif
}
