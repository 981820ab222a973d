/* Matrices to panels and back. What fills up a last panel is zero.
 *
 * Four functions: panels are rows or columns of the matrix, and the way there or back. `step` serves matrices that take
 * turns, as the four gates do: the panels of one, or its PANELs of k, lie `step` apart.
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

/* panels[q * step][first + k][c] = matrix[q * PANEL + c][k]; every panel has `depth` k. */
EXPORT void KERNEL(pack_rows)(const float *matrix, long stride, long num_rows, long num_columns, float *panels,
                              long depth, long first, long step) {
    for (long row = 0; row < num_rows; row += PANEL) {
        const long count = smaller_of(num_rows - row, PANEL);
        float *panel = panels + (row / PANEL * step * depth + first) * PANEL;
        if (count < PANEL) memset(panel, 0, (size_t)(num_columns * PANEL) * sizeof *panel);
        long k = 0;
        for (; count == PANEL && k + PANEL <= num_columns; k += PANEL)
            transpose(matrix + row * stride + k, stride, panel + k * PANEL, PANEL, PANEL, PANEL);
        for (; k < num_columns; k += PANEL)
            transpose(matrix + row * stride + k, stride, panel + k * PANEL, PANEL, count,
                      smaller_of(num_columns - k, PANEL));
    }
}

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

/* panels[q][first + k / PANEL * PANEL * step + k % PANEL][c] = matrix[k][q * PANEL + c]; every panel has `depth` k. */
EXPORT void KERNEL(pack_columns)(const float *matrix, long stride, long num_rows, long num_columns, float *panels,
                                 long depth, long first, long step) {
    for (long above = 0; above < num_rows; above += ROWS)
        for (long column = 0; column < num_columns; column += PANEL) {
            const long count = smaller_of(num_columns - column, PANEL);
            for (long k = above; k < smaller_of(above + ROWS, num_rows); k++) {
                float *to = panels + (column / PANEL * depth + first + k / PANEL * PANEL * step + k % PANEL) * PANEL;
                if (count < PANEL) memset(to, 0, PANEL * sizeof *to);
                memcpy(to, matrix + k * stride + column, (size_t)count * sizeof *to);
            }
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
