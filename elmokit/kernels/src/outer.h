/* Products over positions, the gradients of weights:
 *
 *     out[q][m][c] = sum over n of rows[n][m] * panels[q][n][c]
 *
 * The panels are read as they lie. The rows are packed, DEPTH of them at a time, into tiles that stay in the
 * second-level cache while all panels pass.
 */
#ifndef ELMOKIT_OUTER_H
#define ELMOKIT_OUTER_H

#include "panels.h"

#if defined(ITEMS_BF16) && defined(__AMX_BF16__)
#include "amx_outer.h"
#else

enum { COLUMNS_AT_ONCE = 256 }; /* of rows: with DEPTH a quarter of a megabyte */

/* Columns of `depth` rows as tiles, (depth / PAIR, columns of the tile, PAIR). */
static void pack_tiles(const item *rows, long stride, long depth, long num_columns, item *tiles) {
    const long whole = whole_pairs(depth);
#define TILE(count)                                                                                                  \
    for (long k = 0; k < whole; k++)                                                                                 \
        for (int r = 0; r < count; r++)                                                                              \
            tiles[at * whole + (k / PAIR * count + r) * PAIR + k % PAIR] = k < depth ? rows[k * stride + at + r] : 0
    FOR_TILES(num_columns, at, TILE)
#undef TILE
}

/* Part of a panel, whose rows lie one after the other, as a product reads it: in bfloat16 through `paired`. */
static const item *pair_rows(const item *panel, long depth, item *paired) {
    if (PAIR == 1) return panel;
    for (long k = 0; k < depth; k += PAIR)
        for (long c = 0; c < PANEL; c++) {
            paired[k * PANEL + c * PAIR] = panel[k * PANEL + c];
            paired[k * PANEL + c * PAIR + PAIR - 1] = k + PAIR <= depth ? panel[(k + PAIR - 1) * PANEL + c] : 0;
        }
    return paired;
}

/* One part of a panel times all tiles. */
static void multiply_tiles(const item *panel, const item *tiles, long depth, long num_columns, float *out, int add) {
    depth = whole_pairs(depth);
#define TILE(count)                                                                                                  \
    do {                                                                                                             \
        vec sums[MOST_ROWS][VECTORS];                                                                                \
        UNROLL for (int r = 0; r < count; r++)                                                                       \
            UNROLL for (int v = 0; v < VECTORS; v++) sums[r][v] = (vec){0};                                          \
        add_products(sums, panel, tiles + at * depth, PAIR, count, depth, count);                                    \
        float *to = out + at * PANEL;                                                                                \
        store_sums(sums, add ? to : NULL, PANEL, to, PANEL, PANEL, count);                                           \
    } while (0)
    FOR_TILES(num_columns, at, TILE)
#undef TILE
}

/* The same for BESIDE panels, `gap` apart; their results lie `out_gap` apart. */
static void multiply_tiles_beside(const item *panel, long gap, const item *tiles, long depth, long num_columns, float *out,
                                  long out_gap, int add) {
    depth = whole_pairs(depth);
#define TILE(count)                                                                                                  \
    do {                                                                                                             \
        vec sums[BESIDE][MOST_ROWS][VECTORS];                                                                        \
        UNROLL for (int p = 0; p < BESIDE; p++)                                                                      \
            UNROLL for (int r = 0; r < count; r++)                                                                   \
                UNROLL for (int v = 0; v < VECTORS; v++) sums[p][r][v] = (vec){0};                                   \
        add_products_beside(sums, panel, gap, tiles + at * depth, PAIR, count, depth, count);                        \
        UNROLL for (int p = 0; p < BESIDE; p++) {                                                                    \
            float *to = out + p * out_gap + at * PANEL;                                                              \
            store_sums(sums[p], add ? to : NULL, PANEL, to, PANEL, PANEL, count);                                    \
        }                                                                                                            \
    } while (0)
    FOR_TILES(num_columns, at, TILE)
#undef TILE
}

/* rows (num_rows, num_columns), panels (num_panels, num_rows of panel_rows, PANEL), out (num_panels, num_columns, PANEL);
 * tiles is room for COLUMNS_AT_ONCE * DEPTH items, and for whole_pairs(num_rows) * num_columns. */
static void multiply_outer(const item *rows, long stride, const item *panels, long panel_rows, long num_rows,
                           long num_columns, long num_panels, item *tiles, float *out, int accumulate) {
    item paired[BESIDE][PAIR == 1 ? 1 : DEPTH * PANEL];
    for (long first = 0; first < num_columns; first += COLUMNS_AT_ONCE) {
        const long columns = smaller_of(num_columns - first, COLUMNS_AT_ONCE);
        for (long k = 0; k < num_rows; k += DEPTH) {
            const long depth = smaller_of(num_rows - k, DEPTH);
            pack_tiles(rows + k * stride + first, stride, depth, columns, tiles);
            const int add = accumulate || k > 0;
            long q = 0;
            for (; BESIDE > 1 && q + BESIDE <= num_panels; q += BESIDE) {
                const item *beside[BESIDE];
                for (long p = 0; p < BESIDE; p++)
                    beside[p] = pair_rows(panels + ((q + p) * panel_rows + k) * PANEL, depth, paired[p]);
                multiply_tiles_beside(beside[0], PAIR == 1 ? panel_rows * PANEL : DEPTH * PANEL, tiles, depth, columns,
                                      out + (q * num_columns + first) * PANEL, num_columns * PANEL, add);
            }
            for (; q < num_panels; q++)
                multiply_tiles(pair_rows(panels + (q * panel_rows + k) * PANEL, depth, paired[0]), tiles, depth, columns,
                               out + (q * num_columns + first) * PANEL, add);
        }
    }
}

#endif

#endif
