// Convolutions by 3 x 3 filters that move by one pixel, compiled into the library of a graph (winograd.py).
//
// F(2 x 2, 3 x 3) of Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015). A tile of 4 by
// 4 pixels becomes 16 points, which are multiplied with a filter's 16 points, and those products become 2 by
// 2 pixels: 16 multiplications, where there would be 36. Over all channels and filters, the products of a
// point are one of matrices, with the filters in panels (panels.h). Pictures lie with their channels last.
// Each sum is taken in one order, whatever the number of threads.
namespace {
namespace winograd {
using panels::COLUMNS;
using panels::Floats;
#ifdef __AVX512BW__
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
constexpr int64_t POINTS = 16, STEP = 2;
// Tiles of a block, times channels or filters: its points and their products stay near the core. Few channels
// lie as far apart as more.
constexpr int64_t BLOCK = 1 << 13, FEW_CHANNELS = 64;
// Numbers from which a thread more makes up for starting it.
constexpr int64_t SHARE_OF_NUMBERS = 1 << 14;
constexpr bool BY_TWO = panels::ROWS_BY_TWO > 0;
constexpr int64_t ROWS_AT_ONCE = BY_TWO ? panels::ROWS_BY_TWO : panels::ROWS;

IN_PLACE Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
IN_PLACE void store(Vector all, float* to) { *reinterpret_cast<Vector*>(to) = all; }
struct Four {
    Vector a, b, c, d;
};
struct Two {
    Vector a, b;
};
// Of one row or column: pixels to points, and products to pixels.
IN_PLACE Four points_of(Vector a, Vector b, Vector c, Vector d) { return {a - c, b + c, c - b, b - d}; }
IN_PLACE Two pixels_of(Vector a, Vector b, Vector c, Vector d) { return {a + b + c, b - c - d}; }
IN_PLACE void store_row(Four four, float* to, int64_t step) {
    store(four.a, to);
    store(four.b, to + step);
    store(four.c, to + 2 * step);
    store(four.d, to + 3 * step);
}
IN_PLACE Vector finished(Vector all, Vector bias, bool relu) {
    const Vector sum = all + bias, none = {};
    return relu ? (sum < none ? none : sum) : sum;  // what is no number stays none
}
int64_t divided(int64_t one, int64_t other) { return (one + other - 1) / other; }

// x: (images, height, width, channels); w: (4, 4, panels, channels, 16); bias: filters or null; out: (images,
// height and width as they come out, filters)
struct Convolution {
    const float *x, *w, *bias;
    float* out;
    const int64_t images, height, width, channels, filters, above, before;  // the last two: of padding
    const bool relu;
    const int64_t out_height = height + 2 * above - 2, out_width = width + 2 * before - 2;
    const int64_t down = divided(out_height, STEP), across = divided(out_width, STEP);
    const int64_t tiles = images * down * across, panels = filters / COLUMNS;
    const int64_t part_size = divided(channels, panels::CHUNK) * panels::ROWS * panels::STRIDE;
    // Rows of products are apart by a little more than they are long: they do not fall on the same lines.
    const int64_t row_size = filters + COLUMNS;
    const bool share = tiles * POINTS * channels * filters / omp_get_max_threads() >= panels::SHARE;
    const int64_t threads = share ? omp_get_max_threads() : 1;
    const int64_t few = std::max<int64_t>(
        1, BLOCK / std::max({channels, filters, FEW_CHANNELS}) / ROWS_AT_ONCE) * ROWS_AT_ONCE;
    // Each thread has blocks of its own, as long as there are some for each. Else all work on one.
    const bool together = tiles < 2 * threads * few;
    const int64_t blocks = divided(tiles, few * (together ? threads : 1));
    const int64_t most = blocks ? divided(tiles, blocks) : 0;  // tiles of a block
    const int64_t points_size = POINTS * divided(most, ROWS_AT_ONCE) * part_size;
    const int64_t block_size = points_size + POINTS * most * row_size;
    // Of what one call needs, beside its result: also, zeros for a pixel that is not there.
    const int64_t copy_size = channels + block_size * (together ? 1 : threads);

    // Whether each number is finite.
    bool run(float* copy) const {
        std::fill_n(copy, channels, 0.0f);
        bool finite = true;
        #pragma omp parallel num_threads(threads) if (share) reduction(&& : finite)
        {
            const int64_t me = omp_get_thread_num(), of = omp_get_num_threads();
            float* own = copy + channels;
            if (!together) own += me * block_size;
            for (int64_t number = together ? 0 : me; number < blocks; number += together ? 1 : of) {
                const Block block(*this, number, copy, own);
                finite = together ? block.run(me, of) && finite : block.run(0, 1) && finite;
            }
        }
        return finite;
    }

    // Some tiles: rows of the products. In parts of as many as there are sums in registers.
    struct Block {
        const Convolution& all;
        const int64_t first, rows;
        const float* zeros;
        float *points, *products;
        const int64_t parts = divided(rows, ROWS_AT_ONCE), point_size = parts * all.part_size;

        Block(const Convolution& all, int64_t number, const float* zeros, float* own)
            : all(all), first(all.tiles * number / all.blocks),
              rows(all.tiles * (number + 1) / all.blocks - first), zeros(zeros), points(own),
              products(own + all.points_size) {}

        int64_t first_of(int64_t part) const { return rows * part / parts; }

        // One thread's share of it, of so many threads.
        bool run(int64_t me, int64_t of) const {
            const auto barrier = [of] {
                if (of > 1) {
                    #pragma omp barrier
                }
            };
            const int64_t begin = rows * me / of, end = rows * (me + 1) / of;
            for (int64_t part = 0; part < parts; ++part) {
                const int64_t its_first = first_of(part), its_end = std::min(end, first_of(part + 1));
                float* to = points + part * all.part_size;
                for (int64_t r = std::max(begin, its_first); r < its_end; ++r)
                    make_points(first + r, to + (r - its_first) * panels::STRIDE);
            }
            barrier();
            const int64_t at_once = BY_TWO ? 2 : 1, times = divided(all.panels, at_once);
            const int64_t units = POINTS * times;
            for (int64_t unit = units * me / of; unit < units * (me + 1) / of; ++unit)
                multiply(unit / times, unit % times * at_once, at_once);
            barrier();
            bool finite = true;
            for (int64_t r = begin; r < end; ++r)
                finite = make_pixels(first + r, products + r * all.row_size) && finite;
            return finite;
        }

        void make_points(int64_t tile, float* to) const {
            const int64_t image = tile / (all.down * all.across);
            const int64_t y = tile / all.across % all.down * STEP - all.above;
            const int64_t x = tile % all.across * STEP - all.before;
            const float* from[POINTS];
            for (int64_t i = 0; i < POINTS; ++i) {
                const int64_t row = y + i / 4, column = x + i % 4;
                const bool is_there = row >= 0 && row < all.height && column >= 0 && column < all.width;
                const int64_t pixel = (image * all.height + row) * all.width + column;
                from[i] = is_there ? all.x + pixel * all.channels : zeros;
            }
            const auto pixel = [&from](int64_t i, int64_t c) { return load(from[i] + c); };
            for (int64_t chunk = 0; chunk < all.channels; chunk += panels::CHUNK) {
                const int64_t end = std::min(all.channels, chunk + panels::CHUNK);
                float* its = to + chunk / panels::CHUNK * panels::ROWS * panels::STRIDE;
                for (int64_t c = chunk; c < end; c += LANES, its += LANES) {
                    const Four one = points_of(pixel(0, c), pixel(4, c), pixel(8, c), pixel(12, c));
                    const Four two = points_of(pixel(1, c), pixel(5, c), pixel(9, c), pixel(13, c));
                    const Four three = points_of(pixel(2, c), pixel(6, c), pixel(10, c), pixel(14, c));
                    const Four four = points_of(pixel(3, c), pixel(7, c), pixel(11, c), pixel(15, c));
                    store_row(points_of(one.a, two.a, three.a, four.a), its, point_size);
                    store_row(points_of(one.b, two.b, three.b, four.b), its + 4 * point_size, point_size);
                    store_row(points_of(one.c, two.c, three.c, four.c), its + 8 * point_size, point_size);
                    store_row(points_of(one.d, two.d, three.d, four.d), its + 12 * point_size, point_size);
                }
            }
        }

        // The products of one point with so many panels, of which there may be fewer.
        void multiply(int64_t point, int64_t panel, int64_t at_once) const {
            const int64_t count = std::min(at_once, all.panels - panel), panel_size = COLUMNS * all.channels;
            const float* w = all.w + (point * all.panels + panel) * panel_size;
            const float none[2 * COLUMNS] = {};
            for (int64_t part = 0; part < parts; ++part) {
                const int64_t begin = first_of(part), some = first_of(part + 1) - begin;
                // Of the panels that come next, which after those of a point are those of another.
                const auto* next = reinterpret_cast<const char*>(w + at_once * panel_size);
                const int64_t share = COLUMNS * sizeof(float) / parts;
                const auto block = panels::block_for<Floats>(count, some);
                block(points + point * point_size + part * all.part_size, w, panel_size, none,
                      products + (point * rows + begin) * all.row_size + panel * COLUMNS, all.channels,
                      all.row_size, COLUMNS, {next + part * share * all.channels, share});
            }
        }

        // Whether each number is finite.
        bool make_pixels(int64_t tile, const float* from) const {
            const int64_t image = tile / (all.down * all.across), step = rows * all.row_size;
            const int64_t y = tile / all.across % all.down * STEP, x = tile % all.across * STEP;
            const bool right = x + 1 < all.out_width, below = y + 1 < all.out_height;
            float* to = all.out + ((image * all.out_height + y) * all.out_width + x) * all.filters;
            float* to_below = to + all.out_width * all.filters;
            const auto product = [from, step](int64_t i, int64_t c) { return load(from + i * step + c); };
            const Vector none = {};
            Vector check = none;
            for (int64_t c = 0; c < all.filters; c += LANES) {
                const Two one = pixels_of(product(0, c), product(4, c), product(8, c), product(12, c));
                const Two two = pixels_of(product(1, c), product(5, c), product(9, c), product(13, c));
                const Two three = pixels_of(product(2, c), product(6, c), product(10, c), product(14, c));
                const Two four = pixels_of(product(3, c), product(7, c), product(11, c), product(15, c));
                const Two row = pixels_of(one.a, two.a, three.a, four.a);
                const Two low = pixels_of(one.b, two.b, three.b, four.b);
                check += row.a * none + row.b * none + low.a * none + low.b * none;
                const Vector added = all.bias ? load(all.bias + c) : none;
                store(finished(row.a, added, all.relu), to + c);
                if (right) store(finished(row.b, added, all.relu), to + all.filters + c);
                if (below) store(finished(low.a, added, all.relu), to_below + c);
                if (right && below) store(finished(low.b, added, all.relu), to_below + all.filters + c);
            }
            bool finite = true;
            for (int64_t lane = 0; lane < LANES; ++lane) finite = check[lane] == 0 && finite;
            return finite;
        }
    };
};
// The filters whose points these are: (filters, channels, 3, 3).
void filters_of(const float* points, int64_t filters, int64_t channels, float* to) {
    const int64_t step = filters * channels;
    for (int64_t filter = 0; filter < filters; ++filter)
        for (int64_t channel = 0; channel < channels; ++channel) {
            const float* from = points + (filter / COLUMNS * channels + channel) * COLUMNS + filter % COLUMNS;
            const auto point = [from, step](int64_t y, int64_t x) { return from[(4 * y + x) * step]; };
            const auto row = [&point](int64_t y, int64_t x) {
                return x == 0 ? point(y, 0) : x == 1 ? point(y, 1) - point(y, 2) : point(y, 3);
            };
            for (int64_t x = 0; x < 3; ++x) {
                to[x] = row(0, x);
                to[3 + x] = row(1, x) - row(2, x);
                to[6 + x] = row(3, x);
            }
            to += 9;
        }
}
// oneDNN's own relu makes a number of what is none.
void make_positive(float* all, int64_t count) {
    const Vector none = {};
    const int64_t whole = count / LANES;
    #pragma omp parallel for schedule(static) if (count / omp_get_max_threads() >= SHARE_OF_NUMBERS)
    for (int64_t i = 0; i < whole; ++i) store(finished(load(all + i * LANES), none, true), all + i * LANES);
    for (int64_t i = whole * LANES; i < count; ++i) all[i] = all[i] < 0 ? 0 : all[i];
}
AOTITorchError by_onednn(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias,
                         const int64_t (&padding)[2], int64_t relu, AtenTensorHandle* result) {
    const int64_t ones[] = {1, 1};
    const double* no_numbers[] = {nullptr};
    const char* no_word = "";
    if (auto error = aoti_torch_cpu_mkldnn__convolution_pointwise(
            input, weight, bias ? &bias : nullptr, padding, 2, ones, 2, ones, 2, 1, "none", no_numbers, 0,
            &no_word, result)) return error;
    if (!relu) return AOTI_TORCH_SUCCESS;
    int64_t count;
    void* out;
    if (auto error = aoti_torch_get_numel(*result, &count)) return error;
    if (auto error = aoti_torch_get_data_ptr(*result, &out)) return error;
    make_positive(static_cast<float*>(out), count);
    return AOTI_TORCH_SUCCESS;
}
}
// As torch's own C functions: handles in, the handle of a new tensor out, an error code returned.
// input: (images, channels, height, width), channels last; weight: (4, 4, panels, channels, 16), or for
// oneDNN (filters, channels, 3, 3), packed or not; bias: (filters) or null; result: as input
[[maybe_unused]] AOTITorchError aoti_torch_cpu_precompiled_winograd(
        AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias, int64_t filters,
        int64_t above, int64_t before, int64_t relu, AtenTensorHandle* result) {
    const int64_t padding[] = {above, before};
    int64_t dimensions;
    if (auto error = aoti_torch_get_dim(weight, &dimensions)) return error;
    if (dimensions == 4) return winograd::by_onednn(input, weight, bias, padding, relu, result);
    const int32_t device = aoti_torch_device_type_cpu(), dtype = aoti_torch_dtype_float32();
    int64_t* sizes;
    void *x, *w, *added = nullptr, *out, *copy;
    if (auto error = aoti_torch_get_sizes(input, &sizes)) return error;
    if (auto error = aoti_torch_get_data_ptr(input, &x)) return error;
    if (auto error = aoti_torch_get_data_ptr(weight, &w)) return error;
    if (auto error = bias ? aoti_torch_get_data_ptr(bias, &added) : AOTI_TORCH_SUCCESS) return error;
    const int64_t channels = sizes[1], height = sizes[2] + 2 * above - 2, width = sizes[3] + 2 * before - 2;
    if (height < 1 || width < 1) return AOTI_TORCH_FAILURE;
    const int64_t made_sizes[] = {sizes[0], filters, height, width};
    const int64_t made_strides[] = {height * width * filters, 1, width * filters, filters};
    AtenTensorHandle made, copied, plain;
    if (auto error = aoti_torch_empty_strided(4, made_sizes, made_strides, dtype, device, 0, &made))
        return error;
    RAIIAtenTensorHandle owner(made);
    if (auto error = aoti_torch_get_data_ptr(owner, &out)) return error;
    const winograd::Convolution convolution{
        static_cast<const float*>(x), static_cast<const float*>(w), static_cast<const float*>(added),
        static_cast<float*>(out), sizes[0], sizes[2], sizes[3], channels, filters, above, before, relu != 0};
    const int64_t copy_size[] = {convolution.copy_size}, copy_stride[] = {1};
    if (auto error = aoti_torch_empty_strided(1, copy_size, copy_stride, dtype, device, 0, &copied))
        return error;
    RAIIAtenTensorHandle copy_owner(copied);
    if (auto error = aoti_torch_get_data_ptr(copy_owner, &copy)) return error;
    if (convolution.run(static_cast<float*>(copy))) {
        *result = owner.release();
        return AOTI_TORCH_SUCCESS;
    }
    // What is infinite, or overflows on the way, may be no number here, and is one where it is multiplied.
    const int64_t plain_sizes[] = {filters, channels, 3, 3}, plain_strides[] = {channels * 9, 9, 3, 1};
    if (auto error = aoti_torch_empty_strided(4, plain_sizes, plain_strides, dtype, device, 0, &plain))
        return error;
    RAIIAtenTensorHandle plain_owner(plain);
    if (auto error = aoti_torch_get_data_ptr(plain_owner, &out)) return error;
    winograd::filters_of(static_cast<const float*>(w), filters, channels, static_cast<float*>(out));
    return winograd::by_onednn(input, plain, bias, padding, relu, result);
}
}
