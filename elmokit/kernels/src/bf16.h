/* Products of numbers rounded to bfloat16 (the upper half of a float32), summed in float32.
 *
 * The layout is that of int8.h: slices of SLICE columns, (outputs / TILE, columns / 2, TILE, 2). A row's sums do not
 * depend on the other rows.
 */
#ifndef ELMOKIT_BF16_H
#define ELMOKIT_BF16_H

#include "int8.h"
#include "panels.h"
#include "pairs.h"

enum {
    PAIR_VECTORS = TILE / LANES,             /* registers of a tile's sums */
    BF16_ROWS = PAIR_VECTORS == 1 ? 8 : 4,   /* most rows at once */
    BF16_TILES = PAIR_VECTORS == 1 ? 2 : 1,  /* tiles beside so many rows: 16 sums hide the latency of the products */
    FEW_TILES = PAIR_VECTORS == 1 ? 8 : 4    /* tiles beside a single row */
};

/* As multiply_int8_tile: `rows` and `tiles` are constants. */
INLINE void multiply_bf16_tile(const uint16_t *weight, const int16_t *inputs, long num_pairs, const float *from,
                               long from_stride, float *out, long stride, const int rows, const int tiles) {
    const long tile_size = num_pairs * 2 * TILE;
    vec totals[16][PAIR_VECTORS];
    UNROLL for (int sum = 0; sum < rows * tiles; sum++)
        UNROLL for (int v = 0; v < PAIR_VECTORS; v++) totals[sum][v] = (vec){0};
    for (long pair = 0; pair < num_pairs; pair++) {
        UNROLL for (int tile = 0; tile < tiles; tile++) {
            ivec pairs[PAIR_VECTORS];
            memcpy(pairs, weight + tile * tile_size + pair * 2 * TILE, sizeof pairs);
            UNROLL for (int row = 0; row < rows; row++) {
                const int32_t input = load_input_pair(inputs + 2 * (row * num_pairs + pair));
                vec *total = totals[row * tiles + tile];
                UNROLL for (int v = 0; v < PAIR_VECTORS; v++) total[v] = add_bf16_pair(total[v], pairs[v], input);
            }
        }
    }
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int tile = 0; tile < tiles; tile++)
            UNROLL for (int v = 0; v < PAIR_VECTORS; v++) {
                const long at = tile * TILE + v * LANES;
                const vec total = totals[row * tiles + tile][v];
                store(out + row * stride + at, from ? load(from + row * from_stride + at) + total : total);
            }
}

/* All rows times `num_columns` outputs of one slice, whole tiles, which lie one after the other. */
static inline void multiply_bf16(const uint16_t *weight, const int16_t *inputs, long num_rows, long num_pairs,
                                 const float *from, long from_stride, float *out, long stride, long num_columns) {
    for (long first = 0; first < num_columns;) {
        const long left = (num_columns - first) / TILE;
        const int tiles = num_rows == 1 && left >= FEW_TILES ? FEW_TILES : left >= BF16_TILES ? BF16_TILES : 1;
        for (long row = 0; row < num_rows;) {
            const int16_t *here = inputs + row * 2 * num_pairs;
            const float *base = from ? from + row * from_stride + first : NULL;
            float *to = out + row * stride + first;
#define PART(rows, tiles) multiply_bf16_tile(weight, here, num_pairs, base, from_stride, to, stride, rows, tiles)
            const int rows = num_rows - row >= BF16_ROWS ? BF16_ROWS : num_rows - row >= 2 ? 2 : 1;
            if (tiles == FEW_TILES)
                PART(1, FEW_TILES);
            else if (tiles == BF16_TILES && rows == BF16_ROWS)
                PART(BF16_ROWS, BF16_TILES);
            else if (tiles == BF16_TILES && rows == 2)
                PART(2, BF16_TILES);
            else if (tiles == BF16_TILES)
                PART(1, BF16_TILES);
            else if (rows == BF16_ROWS)
                PART(BF16_ROWS, 1);
            else if (rows == 2)
                PART(2, 1);
            else
                PART(1, 1);
#undef PART
            row += rows;
        }
        first += tiles * TILE;
        weight += tiles * num_pairs * 2 * TILE;
    }
}

/* One row of one slice; an odd last column is followed by zero. */
static void round_row(const float *inputs, long num_columns, int16_t *rounded) {
    for (long k = 0; k < num_columns; k += LANES) {
        const halves found = round_lanes(load_part(inputs + k, smaller_of(num_columns - k, LANES)));
        memcpy(rounded + k, &found, (size_t)smaller_of(num_columns - k, LANES) * sizeof *rounded);
    }
    if (num_columns % 2) rounded[num_columns] = 0;
}

#endif
