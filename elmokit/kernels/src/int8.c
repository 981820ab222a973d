/* inputs . weight^T with weights of eight bits and inputs quantized on the way to sixteen.
 *
 * Sixteen-bit inputs cost no more than eight-bit ones here: x86 multiplies pairs of 16-bit numbers into
 * 32-bit sums in one instruction, while its 8-bit form needs two and saturates. They add next to no error,
 * and no offset to correct.
 *
 * Inputs are cut into slices of SLICE columns, each with scales of its own. The packed weight is, slice by
 * slice, (outputs / TILE, columns / 2, TILE, 2): the pairs of a tile's outputs lie side by side.
 */
#include "kernel.h"

enum {
    SLICE = 512,  /* 512 * 127 * 32767 is the most that a 32-bit sum can hold */
    TILE = 16,    /* outputs at once */
    PANEL = 64,   /* rows whose inputs wait in the second cache while the weight passes */
    ROWS = 4,     /* rows at once */
    LEVELS = 32767
};

#if defined(__AVX512VNNI__)
enum { PARTS = 1 };
typedef __m512i sums;
INLINE void load_pairs(const int8_t *weight, __m512i *pairs) {
    pairs[0] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)weight));
}
INLINE __m512i add_pair(__m512i sum, __m512i pairs, int32_t input) {
    return _mm512_dpwssd_epi32(sum, pairs, _mm512_set1_epi32(input));
}
#elif defined(__AVX2__)
enum { PARTS = 2 };
typedef __m256i sums;
INLINE void load_pairs(const int8_t *weight, __m256i *pairs) {
    for (int part = 0; part < PARTS; part++)
        pairs[part] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(weight + 16 * part)));
}
INLINE __m256i add_pair(__m256i sum, __m256i pairs, int32_t input) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi32(input)));
}
#else
enum { PARTS = 4 };
typedef int32_t sums __attribute__((vector_size(16)));
typedef int8_t bytes __attribute__((vector_size(8)));
typedef int16_t shorts __attribute__((vector_size(16)));
INLINE void load_pairs(const int8_t *weight, sums *pairs) {
    for (int part = 0; part < PARTS; part++) {
        bytes loaded;
        memcpy(&loaded, weight + 8 * part, sizeof loaded);
        pairs[part] = (sums)__builtin_convertvector(loaded, shorts); /* two 16-bit numbers a lane */
    }
}
INLINE sums add_pair(sums sum, sums pairs, int32_t input) {
    const sums low = ((pairs << 16) >> 16) * (int16_t)input, high = (pairs >> 16) * (input >> 16);
    return sum + low + high;
}
#endif

INLINE int32_t load_input_pair(const int16_t *inputs) {
    int32_t pair;
    memcpy(&pair, inputs, sizeof pair);
    return pair;
}

/* The whole-number products of one tile of outputs with `rows` rows (constant). */
INLINE void multiply_tile(const int8_t *weight, const int16_t *inputs, long num_pairs, int32_t *products,
                          const int rows) {
    sums totals[ROWS][PARTS] = {{{0}}};
#pragma GCC unroll 2 /* spares the compiler copies of the totals */
    for (long pair = 0; pair < num_pairs; pair++) {
        sums pairs[PARTS];
        load_pairs(weight + pair * 2 * TILE, pairs);
        UNROLL for (int row = 0; row < rows; row++) {
            const int32_t input = load_input_pair(inputs + row * SLICE + 2 * pair);
            UNROLL for (int part = 0; part < PARTS; part++)
                totals[row][part] = add_pair(totals[row][part], pairs[part], input);
        }
    }
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int part = 0; part < PARTS; part++) {
            const sums total = totals[row][part]; /* a copy, so that the totals themselves stay in registers */
            memcpy(products + row * TILE + part * (TILE / PARTS), &total, sizeof total);
        }
    }
}

INLINE void write_tile(const int32_t *products, float input_scale, const float *weight_scales, float *out,
                       long num_outputs, int accumulate) {
    float values[TILE];
    for (int o = 0; o < TILE; o++) values[o] = (float)products[o] * (input_scale * weight_scales[o]);
    if (accumulate)
        for (long o = 0; o < num_outputs; o++) values[o] += out[o];
    memcpy(out, values, (size_t)num_outputs * sizeof *out);
}

/* One slice for one panel of rows. */
static void multiply_panel(const int8_t *weight, const float *weight_scales, const int16_t *inputs,
                           const float *input_scales, long num_rows, long num_pairs, float *out, long out_stride,
                           long num_outputs, int accumulate) {
    for (long first = 0; first < num_outputs; first += TILE) {
        const long left = num_outputs - first, count = left < TILE ? left : TILE;
        const int8_t *tile = weight + first * 2 * num_pairs;
        const float *scales = weight_scales + first;
        for (long row = 0; row < num_rows;) {
            int32_t products[ROWS * TILE];
            const int16_t *row_inputs = inputs + row * SLICE;
            const long rows_left = num_rows - row, rows = rows_left < 4 ? (rows_left < 2 ? 1 : 2) : 4;
            if (rows == 4) multiply_tile(tile, row_inputs, num_pairs, products, 4);
            if (rows == 2) multiply_tile(tile, row_inputs, num_pairs, products, 2);
            if (rows == 1) multiply_tile(tile, row_inputs, num_pairs, products, 1);
            for (long r = 0; r < rows; r++, row++) {
                float *to = out + row * out_stride + first;
                if (count == TILE)
                    write_tile(products + r * TILE, input_scales[row], scales, to, TILE, accumulate);
                else
                    write_tile(products + r * TILE, input_scales[row], scales, to, count, accumulate);
            }
        }
    }
}

/* The largest size in a row, or NaN if the row has a value that is no number or infinite. */
static float largest_size(const float *inputs, long num_columns) {
    vec largest = {0}, nothing = {0};
    for (long k = 0; k < num_columns; k += LANES) {
        const vec part = k + LANES <= num_columns ? load(inputs + k) : load_part(inputs + k, num_columns - k);
        largest = larger(largest, larger(part, -part));
        nothing += part * 0.0f; /* stays zero for all finite values */
    }
    float size = 0.0f;
    for (int lane = 0; lane < LANES; lane++) size = largest[lane] > size ? largest[lane] : size;
    return size + sum_lanes(nothing);
}

/* One row of one slice; returns its scale, NaN for a row that is not finite. What follows an odd column meets a
 * weight of zero. */
static float quantize_row(const float *inputs, long num_columns, int16_t *quantized) {
    const float largest = largest_size(inputs, num_columns);
    if (!(largest > 1e-30f)) { /* nothing in it, or NaN */
        memset(quantized, 0, (size_t)num_columns * sizeof *quantized);
        return largest * 0.0f;
    }
    const float levels = LEVELS / largest, shift = 12582912.0f; /* adding and taking away the shift rounds */
    for (long k = 0; k < num_columns; k++) quantized[k] = (int16_t)((inputs[k] * levels + shift) - shift);
    return largest / LEVELS;
}

/* room is for PANEL * SLICE quantized inputs. weight_scales is (slices, tiles * TILE). */
EXPORT void KERNEL(matmul_int8)(const float *inputs, long inputs_stride, const int8_t *weight,
                                const float *weight_scales, int16_t *room, float *out, long out_stride, long num_rows,
                                long num_inputs, long num_outputs, int accumulate) {
    const long num_tiles = (num_outputs + TILE - 1) / TILE;
    for (long panel = 0; panel < num_rows; panel += PANEL) {
        const long rows_left = num_rows - panel, rows = rows_left < PANEL ? rows_left : PANEL;
        const int8_t *slice_weight = weight;
        for (long column = 0; column < num_inputs; column += SLICE) {
            const long columns_left = num_inputs - column, columns = columns_left < SLICE ? columns_left : SLICE;
            const long num_pairs = (columns + 1) / 2;
            float scales[PANEL];
            const float *slice_scales = weight_scales + column / SLICE * num_tiles * TILE;
            for (long row = 0; row < rows; row++) {
                const float *row_inputs = inputs + (panel + row) * inputs_stride + column;
                scales[row] = quantize_row(row_inputs, columns, room + row * SLICE);
            }
            multiply_panel(slice_weight, slice_scales, room, scales, rows, num_pairs, out + panel * out_stride,
                           out_stride, num_outputs, accumulate || column > 0);
            slice_weight += num_tiles * num_pairs * 2 * TILE;
        }
    }
}
