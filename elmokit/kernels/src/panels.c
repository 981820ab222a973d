/* out = inputs . weight^T, or out += it, with a weight that was packed into panels.
 *
 * A panel is PANEL outputs, (num_inputs, PANEL): what one turn of the loop needs lies side by side, so the weight
 * streams through the processor once, whatever the number of rows. A library's product is made for matrices with more
 * rows than a batch has sentences; at 8 to 64 rows it spends most of its time on arranging the weight anew.
 */
#include "kernel.h"

enum {
    PANEL = 16,
    VECTORS = PANEL / LANES,
    MOST_ROWS = 12 / VECTORS,
    AHEAD = 32, /* cache lines between what is read and what is asked for; a turn of the loop takes one */
    DEPTH = 512 /* inputs summed in one go; long sums are made of such parts, which rounds less */
};

/* One part of a panel with `rows` input rows, a constant, so that the sums are registers. */
INLINE void multiply_tile(const float *panel, const float *inputs, long input_stride, long num_inputs, float *out,
                          long out_stride, long count, int accumulate, const int rows) {
    vec sums[MOST_ROWS][VECTORS];
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int v = 0; v < VECTORS; v++) sums[row][v] = (vec){0};
    for (long k = 0; k < num_inputs; k++) {
        __builtin_prefetch(panel + (k + AHEAD) * PANEL);
        vec weights[VECTORS];
        UNROLL for (int v = 0; v < VECTORS; v++) weights[v] = load(panel + k * PANEL + v * LANES);
        UNROLL for (int row = 0; row < rows; row++) {
            const vec value = everywhere(inputs[row * input_stride + k]);
            UNROLL for (int v = 0; v < VECTORS; v++) sums[row][v] += value * weights[v];
        }
    }
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int v = 0; v < VECTORS; v++) {
            const long left = count - v * LANES;
            if (left <= 0) break;
            float *to = out + row * out_stride + v * LANES;
            const long part = left < LANES ? left : LANES;
            if (part == LANES)
                store(to, accumulate ? load(to) + sums[row][v] : sums[row][v]);
            else
                store_part(to, accumulate ? load_part(to, part) + sums[row][v] : sums[row][v], part);
        }
    }
}

/* One part of a panel with all rows. */
static void multiply_part(const float *panel, const float *inputs, long input_stride, long num_rows, long num_inputs,
                          float *out, long out_stride, long count, int accumulate) {
    long row = 0;
#define TILE(rows) \
    multiply_tile(panel, inputs + row * input_stride, input_stride, num_inputs, out + row * out_stride, out_stride, \
                  count, accumulate, rows)
    for (; row + MOST_ROWS <= num_rows; row += MOST_ROWS) TILE(MOST_ROWS);
    switch (num_rows - row) {
#define LAST(rows) case rows: if (rows < MOST_ROWS) TILE(rows); break
        LAST(1); LAST(2); LAST(3); LAST(4); LAST(5); LAST(6); LAST(7); LAST(8); LAST(9); LAST(10); LAST(11);
#undef LAST
        default: break;
    }
#undef TILE
}

EXPORT void KERNEL(matmul_panels)(const float *inputs, long input_stride, const float *panels, float *out,
                                  long out_stride, long num_rows, long num_inputs, long num_outputs, int accumulate) {
    for (long first = 0; first < num_outputs; first += PANEL) {
        const long left = num_outputs - first, count = left < PANEL ? left : PANEL;
        const float *panel = panels + first * num_inputs;
        for (long k = 0; k < num_inputs; k += DEPTH) {
            const long depth = num_inputs - k < DEPTH ? num_inputs - k : DEPTH;
            multiply_part(panel + k * PANEL, inputs + k, input_stride, num_rows, depth, out + first, out_stride, count,
                          accumulate || k > 0);
        }
    }
}
