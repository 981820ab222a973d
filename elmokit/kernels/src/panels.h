/* Matrix products with one operand in panels.
 *
 * A panel is PANEL columns of a matrix, (depth, PANEL): what one turn of the inner loop reads lies side by side, so the
 * panel streams through the processor once for all rows of the other operand. A library's product is made for
 * matrices with more rows than a batch has sentences; at 8 to 64 rows it spends most of its time on packing.
 *
 *     out[r][c] = from[r][c] + (sum over k of rows[r][k] * panel[k][c])
 *
 * A row's sums depend on that row alone: not on the rows beside it, nor on how they are cut into tiles.
 */
#ifndef ELMOKIT_PANELS_H
#define ELMOKIT_PANELS_H

#include "items.h"

enum {
    PANEL = 16,
    VECTORS = PANEL / LANES,
    MOST_ROWS = 12 / VECTORS, /* 12 sums, the panel's values and one broadcast fill the registers of AVX2 */
    BESIDE = LANES == 16 ? 2 : 1, /* panels at once: AVX-512 has twice as many registers, and each broadcast serves both */
    AHEAD = 32,               /* cache lines between what is read and what is prefetched */
    DEPTH = 256               /* k summed in one go: a panel's part, 16 kB, stays in the first-level cache for all
                                 rows, and long sums made of such parts round less */
};

/* Rows of the other operand: element k of row r is at first[r * row + k / PANEL * panel + k % PANEL].
 * Plain rows have panel == PANEL; a matrix that is itself in panels has row == PANEL. */
struct rows {
    const item *first;
    long row, panel;
};

INLINE struct rows skip_rows(struct rows rows, long count) {
    rows.first += count * rows.row;
    return rows;
}

/* k must be a multiple of PANEL. */
INLINE struct rows skip_depth(struct rows rows, long k) {
    rows.first += k / PANEL * rows.panel;
    return rows;
}

INLINE long smaller_of(long a, long b) { return a < b ? a : b; }

/* Whole panels that lie `panel` apart; their columns begin `from` apart and `out` apart. The parts of panels that are read
 * next lie `next` from these. */
struct gaps {
    long panel, from, out, next;
};

/* Calls TILE(count) for tiles of nearly one size: one small last tile would leave the multipliers waiting. */
#define FOR_TILES(num_rows, at, TILE)                                                                                  \
    for (long at = 0, left_ = ((num_rows) + MOST_ROWS - 1) / MOST_ROWS, size_; at < (num_rows); at += size_, left_--) {\
        size_ = ((num_rows) - at + left_ - 1) / left_;                                                                 \
        switch (size_) {                                                                                               \
            case 1: TILE(1); break;                                                                                    \
            case 2: TILE(2); break;                                                                                    \
            case 3: TILE(3); break;                                                                                    \
            case 4: if (MOST_ROWS >= 4) TILE(4); break;                                                                \
            case 5: if (MOST_ROWS >= 5) TILE(5); break;                                                                \
            case 6: if (MOST_ROWS >= 6) TILE(6); break;                                                                \
            case 7: if (MOST_ROWS >= 7) TILE(7); break;                                                                \
            case 8: if (MOST_ROWS >= 8) TILE(8); break;                                                                \
            case 9: if (MOST_ROWS >= 9) TILE(9); break;                                                                \
            case 10: if (MOST_ROWS >= 10) TILE(10); break;                                                             \
            case 11: if (MOST_ROWS >= 11) TILE(11); break;                                                             \
            default: if (MOST_ROWS >= 12) TILE(12); break;                                                             \
        }                                                                                                              \
    }

#if defined(ITEMS_BF16) && defined(__AMX_BF16__)
#include "amx.h" /* the same functions as below */
#else

/* Around all products of a call from outside: what AMX needs. */
INLINE void begin_products(void) {}
INLINE void end_products(void) {}

/* sums[r] += row r times a panel; `count` rows, a constant, so that the sums are registers. */
INLINE void add_products(vec sums[][VECTORS], const item *panel, const item *row, long stride, long step, long depth,
                         const int count) {
    for (long k = 0; k < depth; k += PAIR) {
        __builtin_prefetch(panel + (k + AHEAD * PAIR) * PANEL);
        item_vec weights[VECTORS];
        UNROLL for (int v = 0; v < VECTORS; v++) weights[v] = load_panel(panel + k * PANEL + v * LANES * PAIR);
        UNROLL for (int r = 0; r < count; r++) {
            const item_pair value = load_pair(row + r * stride + k * step);
            UNROLL for (int v = 0; v < VECTORS; v++) sums[r][v] = add_product(sums[r][v], weights[v], value);
        }
    }
}

/* The same for BESIDE panels, `gap` apart. */
INLINE void add_products_beside(vec sums[][MOST_ROWS][VECTORS], const item *panel, long gap, const item *row, long stride,
                                long step, long depth, const int count) {
    for (long k = 0; k < depth; k += PAIR) {
        item_vec weights[BESIDE][VECTORS];
        UNROLL for (int p = 0; p < BESIDE; p++) {
            __builtin_prefetch(panel + p * gap + (k + AHEAD * PAIR) * PANEL);
            UNROLL for (int v = 0; v < VECTORS; v++)
                weights[p][v] = load_panel(panel + p * gap + k * PANEL + v * LANES * PAIR);
        }
        UNROLL for (int r = 0; r < count; r++) {
            const item_pair value = load_pair(row + r * stride + k * step);
            UNROLL for (int p = 0; p < BESIDE; p++)
                UNROLL for (int v = 0; v < VECTORS; v++)
                    sums[p][r][v] = add_product(sums[p][r][v], weights[p][v], value);
        }
    }
}

INLINE void store_sums(vec sums[][VECTORS], const float *from, long from_stride, float *out, long out_stride,
                       long columns, const int count) {
    UNROLL for (int r = 0; r < count; r++) {
        UNROLL for (int v = 0; v < VECTORS; v++) {
            const long left = columns - v * LANES;
            const float *base = from + r * from_stride + v * LANES;
            float *to = out + r * out_stride + v * LANES;
            if (left >= LANES)
                store(to, from ? load(base) + sums[r][v] : sums[r][v]);
            else if (left > 0)
                store_part(to, from ? load_part(base, left) + sums[r][v] : sums[r][v], left);
        }
    }
}

/* One tile: `count` rows, a constant, times one part of a panel. */
INLINE void multiply_tile(const item *panel, struct rows rows, long depth, const float *from, long from_stride,
                          float *out, long out_stride, long columns, const int count) {
    vec sums[MOST_ROWS][VECTORS];
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < VECTORS; v++) sums[r][v] = (vec){0};
    if (rows.panel == PANEL)
        add_products(sums, panel, rows.first, rows.row, 1, depth, count);
    else
        for (long k = 0; k < depth; k += PANEL, rows.first += rows.panel)
            add_products(sums, panel + k * PANEL, rows.first, PANEL, 1, smaller_of(depth - k, PANEL), count);
    if (columns == PANEL)
        store_sums(sums, from, from_stride, out, out_stride, PANEL, count);
    else
        store_sums(sums, from, from_stride, out, out_stride, columns, count);
}

/* The same times one part of BESIDE panels. */
INLINE void multiply_tile_beside(const item *panel, struct gaps gaps, struct rows rows, long depth, const float *from,
                                 long from_stride, float *out, long out_stride, const int count) {
    vec sums[BESIDE][MOST_ROWS][VECTORS];
    UNROLL for (int p = 0; p < BESIDE; p++)
        UNROLL for (int r = 0; r < count; r++)
            UNROLL for (int v = 0; v < VECTORS; v++) sums[p][r][v] = (vec){0};
    if (rows.panel == PANEL)
        add_products_beside(sums, panel, gaps.panel, rows.first, rows.row, 1, depth, count);
    else
        for (long k = 0; k < depth; k += PANEL, rows.first += rows.panel)
            add_products_beside(sums, panel + k * PANEL, gaps.panel, rows.first, PANEL, 1, smaller_of(depth - k, PANEL),
                                count);
    UNROLL for (int p = 0; p < BESIDE; p++)
        store_sums(sums[p], from ? from + p * gaps.from : NULL, from_stride, out + p * gaps.out, out_stride, PANEL, count);
}

/* All rows times one part of a panel. `from` is NULL for zeros; a from_stride of 0 starts every row from one. */
static inline void multiply_part(const item *panel, struct rows rows, long num_rows, long depth, const float *from,
                                 long from_stride, float *out, long out_stride, long columns) {
#define TILE(count)                                                                                                  \
    multiply_tile(panel, skip_rows(rows, at), depth, from ? from + at * from_stride : NULL, from_stride,             \
                  out + at * out_stride, out_stride, columns, count)
    FOR_TILES(num_rows, at, TILE)
#undef TILE
}

/* All rows times one part of several panels; `num_columns` of them, which may end inside the last. */
static inline void multiply_parts(const item *panel, struct gaps gaps, struct rows rows, long num_rows, long depth,
                                  const float *from, long from_stride, float *out, long out_stride, long num_columns) {
    long first = 0;
#define TILE(count)                                                                                                  \
    multiply_tile_beside(panel, gaps, skip_rows(rows, at), depth, from ? from + at * from_stride : NULL, from_stride,  \
                         out + at * out_stride, out_stride, count)
    for (; BESIDE > 1 && first + BESIDE * PANEL <= num_columns; first += BESIDE * PANEL) {
        FOR_TILES(num_rows, at, TILE)
        panel += BESIDE * gaps.panel, out += BESIDE * gaps.out;
        if (from) from += BESIDE * gaps.from;
    }
#undef TILE
    for (; first < num_columns; first += PANEL) {
        multiply_part(panel, rows, num_rows, depth, from, from_stride, out, out_stride,
                      smaller_of(num_columns - first, PANEL));
        panel += gaps.panel, out += gaps.out;
        if (from) from += gaps.from;
    }
}

#endif

#if !defined(ITEMS_BF16)

/* One to three rows times part of `streams` panels at once (both constants): one panel alone has too few sums to keep the
 * multipliers busy. Panels lie `panel_size` apart; their columns lie side by side in `from` and `out`. */
INLINE void multiply_streams(const float *panel, long panel_size, struct rows rows, long depth, const float *from,
                             long from_stride, float *out, long out_stride, const int count, const int streams) {
    vec sums[4][3][VECTORS];
    UNROLL for (int s = 0; s < streams; s++)
        UNROLL for (int r = 0; r < count; r++)
            UNROLL for (int v = 0; v < VECTORS; v++) sums[s][r][v] = (vec){0};
    for (long begin = 0; begin < depth; begin += PANEL, rows.first += rows.panel) {
        const long end = smaller_of(depth, begin + PANEL);
        for (long k = begin; k < end; k++) {
            UNROLL for (int r = 0; r < count; r++) {
                const vec value = everywhere(rows.first[r * rows.row + k - begin]);
                UNROLL for (int s = 0; s < streams; s++)
                    UNROLL for (int v = 0; v < VECTORS; v++)
                        sums[s][r][v] += value * load(panel + s * panel_size + k * PANEL + v * LANES);
            }
        }
    }
    UNROLL for (int s = 0; s < streams; s++)
        store_sums(sums[s], from ? from + s * PANEL : NULL, from_stride, out + s * PANEL, out_stride, PANEL, count);
}

/* All rows times whole panels, num_panels of them: out = from + rows . panels. `from` as in multiply_part. */
static inline void multiply_few(const float *panels, struct rows rows, long num_rows, long depth, const float *from,
                                long from_stride, float *out, long out_stride, long num_panels) {
    const long streams = num_rows == 1 && num_panels % 4 == 0                   ? 4
                         : num_rows <= 3 && num_panels % 2 == 0 && num_rows > 0 ? 2
                                                                                : 1;
    for (long k = 0; k < depth; k += DEPTH) {
        const long part = smaller_of(depth - k, DEPTH), base_stride = k ? out_stride : from_stride;
        const float *base = k ? out : from;
        if (streams == 1) {
            const struct gaps gaps = {depth * PANEL, PANEL, PANEL, 0};
            multiply_parts(panels + k * PANEL, gaps, skip_depth(rows, k), num_rows, part, base, base_stride, out,
                           out_stride, num_panels * PANEL);
            continue;
        }
        for (long q = 0; q < num_panels; q += streams) {
            const float *panel = panels + (q * depth + k) * PANEL, *start = base ? base + q * PANEL : NULL;
            const struct rows here = skip_depth(rows, k);
            float *to = out + q * PANEL;
#define STREAMS(count, streams)                                                                                      \
    multiply_streams(panel, depth * PANEL, here, part, start, base_stride, to, out_stride, count, streams)
            if (streams == 4)
                STREAMS(1, 4);
            else if (streams == 2 && num_rows == 1)
                STREAMS(1, 2);
            else if (streams == 2 && num_rows == 2)
                STREAMS(2, 2);
            else
                STREAMS(3, 2);
#undef STREAMS
        }
    }
}

#endif

/* All rows times panels: out = rows . panels, or out += it. num_columns may end inside a panel. */
static inline void multiply_panels(const item *panels, struct rows rows, long num_rows, long depth, float *out,
                                   long out_stride, long num_columns, int accumulate) {
    for (long k = 0; k < depth; k += DEPTH) {
        const long part = smaller_of(depth - k, DEPTH);
        const struct gaps gaps = {whole_pairs(depth) * PANEL, PANEL, PANEL, DEPTH * PANEL};
        multiply_parts(panels + k * PANEL, gaps, skip_depth(rows, k), num_rows, part, accumulate || k ? out : NULL,
                       out_stride, out, out_stride, num_columns);
    }
}

#endif
