/* Products with weights of eight bits and inputs quantized to sixteen.
 *
 * Sixteen-bit inputs cost no more than eight-bit ones here: x86 multiplies pairs of 16-bit numbers into
 * 32-bit sums in one instruction, while its 8-bit form needs two and saturates. They add next to no error,
 * and no offset to correct. Sums are whole numbers, so they do not depend on their order.
 *
 * Inputs are cut into slices of SLICE columns, each with scales of its own. The packed weight is, slice by
 * slice, (outputs / TILE, columns / 2, TILE, 2): the pairs of a tile's outputs lie side by side.
 */
#ifndef ELMOKIT_INT8_H
#define ELMOKIT_INT8_H

#include "kernel.h"

enum {
    SLICE = 512, /* 512 * 127 * 32767 is the most that a 32-bit sum can hold */
    TILE = 16,   /* outputs at once */
    LEVELS = 32767
};

/* load_pairs reads a tile's weights for two columns; add_pair adds their products with two columns of one row. */
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

/* Rows of inputs in one slice: row r is at values + r * 2 * num_pairs, so that many rows fit the first-level cache. */
struct quantized {
    int16_t *values;
    float *scales;
};

/* Tiles of weights in one slice: tile t is at packed + t * tile. */
struct tiles {
    const int8_t *packed;
    long tile;
    const float *scales; /* TILE per tile */
};

INLINE int32_t load_input_pair(const int16_t *inputs) {
    int32_t pair;
    memcpy(&pair, inputs, sizeof pair);
    return pair;
}

/* out = from + the products of `tiles` tiles with `rows` rows (both constant): row r, tile t at
 * out + r * stride + t * TILE. `from` is laid out likewise, with a stride of its own; NULL stands for zeros. */
INLINE void multiply_int8_tile(struct tiles weight, struct quantized inputs, long num_pairs, const float *from,
                               long from_stride, float *out, long stride, long columns, const int rows,
                               const int tiles) {
    enum { MOST = 8 };
    sums totals[MOST][PARTS];
    UNROLL for (int sum = 0; sum < rows * tiles; sum++)
        UNROLL for (int part = 0; part < PARTS; part++) totals[sum][part] = (sums){0};
#pragma GCC unroll 2 /* spares the compiler copies of the totals */
    for (long pair = 0; pair < num_pairs; pair++) {
        UNROLL for (int tile = 0; tile < tiles; tile++) {
            sums pairs[PARTS];
            load_pairs(weight.packed + tile * weight.tile + pair * 2 * TILE, pairs);
            UNROLL for (int row = 0; row < rows; row++) {
                const int32_t input = load_input_pair(inputs.values + 2 * (row * num_pairs + pair));
                UNROLL for (int part = 0; part < PARTS; part++)
                    totals[row * tiles + tile][part] = add_pair(totals[row * tiles + tile][part], pairs[part], input);
            }
        }
    }
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int tile = 0; tile < tiles; tile++) {
            int32_t products[TILE];
            float values[TILE];
            UNROLL for (int part = 0; part < PARTS; part++) {
                const sums total = totals[row * tiles + tile][part]; /* a copy: the totals stay in registers */
                memcpy(products + part * (TILE / PARTS), &total, sizeof total);
            }
            const float *scales = weight.scales + tile * TILE, *base = from + row * from_stride + tile * TILE;
            for (int o = 0; o < TILE; o++) values[o] = (float)products[o] * (inputs.scales[row] * scales[o]);
            const long count = columns - tile * TILE < TILE ? columns - tile * TILE : TILE;
            if (from)
                for (long o = 0; o < count; o++) values[o] += base[o];
            memcpy(out + row * stride + tile * TILE, values, (size_t)count * sizeof *values);
        }
    }
}

/* All rows times `num_columns` outputs of one slice. */
static inline void multiply_int8(struct tiles weight, struct quantized inputs, long num_rows, long num_pairs,
                                 const float *from, long from_stride, float *out, long stride, long num_columns) {
    for (long first = 0; first < num_columns;) {
        const long left = num_columns - first;
        const int wide = num_rows == 1 && left >= 4 * TILE ? 4 : 1;
        const long columns = left < wide * TILE ? left : wide * TILE;
        for (long row = 0; row < num_rows;) {
            const struct quantized rest = {inputs.values + row * 2 * num_pairs, inputs.scales + row};
            const float *base = from ? from + row * from_stride + first : NULL;
            float *to = out + row * stride + first;
#define PART(rows, tiles, count)                                                                                     \
    multiply_int8_tile(weight, rest, num_pairs, base, from_stride, to, stride, count, rows, tiles)
            const long rows = num_rows - row >= 4 ? 4 : num_rows - row >= 2 ? 2 : 1;
            if (wide == 4)
                PART(1, 4, 4 * TILE);
            else if (columns == TILE && rows == 4)
                PART(4, 1, TILE);
            else if (rows == 4)
                PART(4, 1, columns);
            else if (rows == 2)
                PART(2, 1, columns);
            else
                PART(1, 1, columns);
#undef PART
            row += rows;
        }
        first += columns;
        weight.packed += wide * weight.tile;
        weight.scales += wide * TILE;
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

#endif
