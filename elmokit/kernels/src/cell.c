/* An LSTM cell between its matrix products (cell.h), one pass over memory in each direction.
 *
 * A row of gates is four blocks of num_cells: input, forget, output, candidate.
 */
#include "cell.h"

INLINE struct gates load_gates(const float *gates, long num_cells, long count) {
    return (struct gates){
        .in = load_part(gates, count),
        .forget = load_part(gates + num_cells, count),
        .out = load_part(gates + 2 * num_cells, count),
        .candidate = load_part(gates + 3 * num_cells, count),
    };
}

INLINE void store_gates(float *to, struct gates gates, long num_cells, long count) {
    store_part(to, gates.in, count);
    store_part(to + num_cells, gates.forget, count);
    store_part(to + 2 * num_cells, gates.out, count);
    store_part(to + 3 * num_cells, gates.candidate, count);
}

/* One register of cells of one row; all pointers are to the first of them. */
INLINE void advance(float *gates, const float *before, float *after, float *squashed, long num_cells, float clip,
                    int keep_gates, long count) {
    const struct gates open = squash(load_gates(gates, num_cells, count));
    const vec cell = next_cell(open, load_part(before, count), clip);
    store_part(after, cell, count);
    store_part(squashed, open.out * hyperbolic_tangent(cell), count);
    if (keep_gates) store_gates(gates, open, num_cells, count);
}

INLINE void advance_rows(float *gates, long gates_stride, const float *before, float *after, float *squashed,
                         long num_rows, long num_cells, float clip, int keep_gates) {
    for (long row = 0; row < num_rows; row++) {
        long c = 0;
        for (; c + LANES <= num_cells; c += LANES)
            advance(gates + c, before + c, after + c, squashed + c, num_cells, clip, keep_gates, LANES);
        if (c < num_cells)
            advance(gates + c, before + c, after + c, squashed + c, num_cells, clip, keep_gates, num_cells - c);
        gates += gates_stride, before += num_cells, after += num_cells, squashed += num_cells;
    }
}

/* New cells and what they let out; before and after may be one. The gates are left as they were, unless they
 * are kept: then their squashed values are written over them, for a backward pass. */
EXPORT void KERNEL(cell_forward)(float *gates, long gates_stride, const float *before, float *after, float *squashed,
                                 long num_rows, long num_cells, float clip, int keep_gates) {
    if (keep_gates)
        advance_rows(gates, gates_stride, before, after, squashed, num_rows, num_cells, clip, 1);
    else
        advance_rows(gates, gates_stride, before, after, squashed, num_rows, num_cells, clip, 0);
}

/* One register of cells of one row; all pointers are to the first of them. */
INLINE void retreat(const float *grad, const float *gates, const float *after, const float *before, float *cell_grad,
                    float *gates_grad, long num_cells, float clip, long count) {
    vec reached = load_part(cell_grad, count);
    const struct gates found = gate_gradients(load_gates(gates, num_cells, count), load_part(after, count),
                                              load_part(before, count), load_part(grad, count), &reached, clip);
    store_gates(gates_grad, found, num_cells, count);
    store_part(cell_grad, reached, count);
}

/* From the gradient of what the cells let out to those of their gates; moves cell_grad one step back. */
EXPORT void KERNEL(cell_backward)(const float *grad, const float *gates, long gates_stride, const float *after,
                                  const float *before, float *cell_grad, float *gates_grad, long gates_grad_stride,
                                  long num_rows, long num_cells, float clip) {
    for (long row = 0; row < num_rows; row++) {
        long c = 0;
        for (; c + LANES <= num_cells; c += LANES)
            retreat(grad + c, gates + c, after + c, before + c, cell_grad + c, gates_grad + c, num_cells, clip, LANES);
        if (c < num_cells)
            retreat(grad + c, gates + c, after + c, before + c, cell_grad + c, gates_grad + c, num_cells, clip,
                    num_cells - c);
        grad += num_cells, after += num_cells, before += num_cells, cell_grad += num_cells;
        gates += gates_stride, gates_grad += gates_grad_stride;
    }
}
