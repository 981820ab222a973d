/* Products of numbers rounded to bfloat16 (the upper half of a float32), summed in float32.
 *
 * The layout is that of int8.h: slices of SLICE columns, (outputs / TILE, columns / 2, TILE, 2). A row's sums do not
 * depend on the other rows. AVX512_BF16 multiplies and adds two pairs per lane in one instruction; elsewhere the same
 * takes two, for tests alone.
 */
#ifndef ELMOKIT_BF16_H
#define ELMOKIT_BF16_H

#include "int8.h"

enum { PAIR_VECTORS = TILE / LANES }; /* registers of a tile's sums */

/* To the nearest, halfway to even. NaN stays NaN: the bit that tells it from infinity may be among those cut. */
INLINE uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* sum + low products + high products of a register of weight pairs with one pair of inputs. */
INLINE vec add_bf16_pair(vec sum, ivec pairs, int32_t input) {
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512i)pairs, (__m512bh)_mm512_set1_epi32(input));
#else
    const uint32_t low = (uint32_t)input << 16, high = (uint32_t)input & 0xffff0000u;
    float parts[2];
    memcpy(parts, &low, sizeof low);
    memcpy(parts + 1, &high, sizeof high);
    sum += (vec)(pairs << 16) * everywhere(parts[0]);
    return sum + (vec)(pairs & (int32_t)0xffff0000u) * everywhere(parts[1]);
#endif
}

/* As multiply_int8_tile, for one tile. */
INLINE void multiply_bf16_tile(const uint16_t *weight, const int16_t *inputs, long num_pairs, const float *from,
                               long from_stride, float *out, long stride, long columns, const int rows) {
    vec totals[4][PAIR_VECTORS];
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < PAIR_VECTORS; v++) totals[row][v] = (vec){0};
    for (long pair = 0; pair < num_pairs; pair++) {
        ivec pairs[PAIR_VECTORS];
        memcpy(pairs, weight + pair * 2 * TILE, sizeof pairs);
        UNROLL for (int row = 0; row < rows; row++) {
            const int32_t input = load_input_pair(inputs + 2 * (row * num_pairs + pair));
            UNROLL for (int v = 0; v < PAIR_VECTORS; v++) totals[row][v] = add_bf16_pair(totals[row][v], pairs[v], input);
        }
    }
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int v = 0; v < PAIR_VECTORS; v++) {
            const long left = columns - v * LANES, count = left < LANES ? left : LANES;
            if (count > 0)
                store_part(out + row * stride + v * LANES,
                           from ? load_part(from + row * from_stride + v * LANES, count) + totals[row][v]
                                : totals[row][v],
                           count);
        }
    }
}

/* All rows times `num_columns` outputs of one slice, whose tiles lie one after the other. */
static inline void multiply_bf16(const uint16_t *weight, const int16_t *inputs, long num_rows, long num_pairs,
                                 const float *from, long from_stride, float *out, long stride, long num_columns) {
    for (long first = 0; first < num_columns; first += TILE, weight += num_pairs * 2 * TILE) {
        const long columns = num_columns - first < TILE ? num_columns - first : TILE;
        for (long row = 0; row < num_rows;) {
            const int16_t *here = inputs + row * 2 * num_pairs;
            const float *base = from ? from + row * from_stride + first : NULL;
            float *to = out + row * stride + first;
            if (num_rows - row >= 4) {
                multiply_bf16_tile(weight, here, num_pairs, base, from_stride, to, stride, columns, 4);
                row += 4;
            } else {
                multiply_bf16_tile(weight, here, num_pairs, base, from_stride, to, stride, columns, 1);
                row += 1;
            }
        }
    }
}

/* One row of one slice; an odd last column is followed by zero. */
static void round_row(const float *inputs, long num_columns, int16_t *rounded) {
    for (long k = 0; k < num_columns; k++) rounded[k] = (int16_t)to_bf16(inputs[k]);
    if (num_columns % 2) rounded[num_columns] = 0;
}

#endif
