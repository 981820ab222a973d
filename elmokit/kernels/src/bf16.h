/* Products of numbers rounded to bfloat16 (the upper half of a float32), summed in float32.
 *
 * The layout is that of int8.h: slices of SLICE columns, (outputs / TILE, columns / 2, TILE, 2). A row's sums do not
 * depend on the other rows.
 */
#ifndef ELMOKIT_BF16_H
#define ELMOKIT_BF16_H

#include "int8.h"
#include "pairs.h"

enum { PAIR_VECTORS = TILE / LANES }; /* registers of a tile's sums */

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
