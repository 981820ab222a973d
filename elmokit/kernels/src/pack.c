/* Matrices to panels of items (items.h), and panels of float32 back to matrices. What fills up a last panel is zero.
 *
 * Four functions: panels are rows or columns of the matrix, and the way there or back. `step` serves matrices that take
 * turns, as the four gates do: the panels of one, or its PANELs of k, lie `step` apart. Packing rounds to bfloat16, once
 * per step of training.
 */
#include "panels.h"

enum { ROWS = 8 }; /* of a matrix at once, so that both sides are visited in pieces of some cache lines */

/* to[c][r] = from[r][c] for up to PANEL rows and columns; through a copy, since rows a power of two apart would fight for
 * one place in the cache. */
INLINE void transpose(const float *from, long from_stride, float *to, long to_stride, long rows, long columns) {
    float square[PANEL][PANEL];
    for (long r = 0; r < rows; r++) memcpy(square[r], from + r * from_stride, (size_t)columns * sizeof *from);
    for (long c = 0; c < columns; c++)
        for (long r = 0; r < rows; r++) to[c * to_stride + r] = square[r][c];
}

/* Item (k, c) of a panel. */
INLINE long item_at(long k, long c) { return k / PAIR * PAIR * PANEL + c * PAIR + k % PAIR; }

/* Columns of up to PANEL rows to k from `first` on. */
INLINE void pack_square(const float *from, long stride, item *panel, long first, long rows, long columns) {
    item square[PANEL][PANEL];
    for (long r = 0; r < rows; r++) copy_items(square[r], from + r * stride, columns);
    for (long c = 0; c < columns; c++)
        for (long r = 0; r < rows; r++) panel[item_at(first + c, r)] = square[r][c];
}

/* Zeros in all columns of a panel from `count` on, and in the k that fills up an odd depth. */
INLINE void clear_rest(item *panel, long first, long end, long depth, long count) {
    for (long k = first; k < end && count < PANEL; k++)
        for (long c = count; c < PANEL; c++) panel[item_at(k, c)] = 0;
    for (long k = depth; k < whole_pairs(depth) && end == depth; k++)
        for (long c = 0; c < PANEL; c++) panel[item_at(k, c)] = 0;
}

/* panels[q * step][first + k][c] = matrix[q * PANEL + c][k]; every panel has `depth` k. */
EXPORT void ITEM_KERNEL(pack_rows)(const float *matrix, long stride, long num_rows, long num_columns, item *panels,
                                   long depth, long first, long step) {
    for (long row = 0; row < num_rows; row += PANEL) {
        const long count = smaller_of(num_rows - row, PANEL);
        item *panel = panels + row / PANEL * step * whole_pairs(depth) * PANEL;
        clear_rest(panel, first, first + num_columns, depth, count);
        long k = 0;
        if (first % PAIR == 0)
            for (; count == PANEL && k + PANEL <= num_columns; k += PANEL)
                pack_square(matrix + row * stride + k, stride, panel + (first + k) * PANEL, 0, PANEL, PANEL);
        for (; k < num_columns; k += PANEL)
            pack_square(matrix + row * stride + k, stride, panel, first + k, count, smaller_of(num_columns - k, PANEL));
    }
}

#if !defined(ITEMS_BF16)

EXPORT void KERNEL(unpack_rows)(float *matrix, long stride, long num_rows, long num_columns, const float *panels,
                                long depth, long first, long step) {
    for (long row = 0; row < num_rows; row += PANEL) {
        const long count = smaller_of(num_rows - row, PANEL);
        const float *panel = panels + (row / PANEL * step * depth + first) * PANEL;
        long k = 0;
        for (; count == PANEL && k + PANEL <= num_columns; k += PANEL)
            transpose(panel + k * PANEL, PANEL, matrix + row * stride + k, stride, PANEL, PANEL);
        for (; k < num_columns; k += PANEL)
            transpose(panel + k * PANEL, PANEL, matrix + row * stride + k, stride, smaller_of(num_columns - k, PANEL),
                      count);
    }
}

EXPORT void KERNEL(unpack_columns)(float *matrix, long stride, long num_rows, long num_columns, const float *panels,
                                   long depth, long first, long step) {
    for (long above = 0; above < num_rows; above += ROWS)
        for (long column = 0; column < num_columns; column += PANEL) {
            const long count = smaller_of(num_columns - column, PANEL);
            for (long k = above; k < smaller_of(above + ROWS, num_rows); k++)
                memcpy(matrix + k * stride + column,
                       panels + (column / PANEL * depth + first + k / PANEL * PANEL * step + k % PANEL) * PANEL,
                       (size_t)count * sizeof *matrix);
        }
}

#endif

/* One k of a panel, or a pair of them: `count` of PANEL columns. */
INLINE void pack_pair(const float *even, const float *odd, item *to, long count) {
#if defined(ITEMS_BF16) && defined(__AVX512BF16__)
    if (count == PANEL && odd) {
        const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(even)));
        const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(odd)));
        _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        return;
    }
#endif
    item rows[PAIR][PANEL] = {{0}};
    copy_items(rows[0], even, count);
    if (odd) copy_items(rows[PAIR - 1], odd, count);
    for (long c = 0; c < PANEL; c++)
        for (long part = 0; part < PAIR; part++) to[c * PAIR + part] = rows[part][c];
}

/* panels[q][first + k / PANEL * PANEL * step + k % PANEL][c] = matrix[k][q * PANEL + c]; every panel has `depth` k, and
 * `first` is a multiple of PAIR. */
EXPORT void ITEM_KERNEL(pack_columns)(const float *matrix, long stride, long num_rows, long num_columns, item *panels,
                                      long depth, long first, long step) {
    const long whole = whole_pairs(depth);
    for (long above = 0; above < num_rows; above += ROWS)
        for (long column = 0; column < num_columns; column += PANEL) {
            const long count = smaller_of(num_columns - column, PANEL);
            for (long k = above; k < smaller_of(above + ROWS, num_rows); k += PAIR) {
                const float *even = matrix + k * stride + column, *odd = even + stride;
                if (PAIR == 1 || k + 1 >= num_rows) odd = NULL;
                item *to = panels + (column / PANEL * whole + first + k / PANEL * PANEL * step + k % PANEL) * PANEL;
                if (count == PANEL)
                    pack_pair(even, odd, to, PANEL);
                else
                    pack_pair(even, odd, to, count);
            }
        }
}
