/* All steps of a bidirectional LSTM without projection, forward and backward.
 *
 * The rows of a step lie side by side, first those of the forward direction, then those of the backward one: step t has
 * batch_sizes[t] of each, the first of the sequences of step t - 1. Gates come with the half from the inputs. With h' and c'
 * of the same sequence one step before, zero in the first step:
 *
 *     i, f, o, j = gates + U h'        c, h as in cell.h, without a clip
 *
 * Backward, last step first: gates_ and c'_ as in cell.h from h_, the gradient from above, to which U^T gates_ of the next
 * step was added.
 */
#include "panels.h"

enum { DIRECTIONS = 2, GATES = 4 };

/* panels.c and cell.c */
EXPORT void KERNEL(matmul_panels)(const float *inputs, long input_stride, const float *panels, float *out, long out_stride,
                                  long num_rows, long num_inputs, long num_outputs, int accumulate);
EXPORT void KERNEL(cell_forward)(float *gates, long gates_stride, const float *before, float *after, float *squashed,
                                 long num_rows, long num_cells, float clip, int keep_gates);
EXPORT void KERNEL(cell_backward)(const float *grad, const float *gates, long gates_stride, const float *after,
                                  const float *before, float *cell_grad, float *gates_grad, long gates_grad_stride,
                                  long num_rows, long num_cells, float clip);

struct steps {
    const int64_t *batch_sizes;
    int64_t num_steps, num_rows, num_sequences, num_cells;
};

struct forward {
    struct steps steps;
    const float *weights; /* (2, panels of the gates, num_cells, PANEL): U */
    const float *start;   /* (num_sequences, num_cells): zeros */
    float *gates;         /* (num_rows, 4 num_cells), squashed at the end */
    float *cells;         /* (num_rows, num_cells) */
    float *outputs;       /* (num_rows, num_cells): h */
};

struct backward {
    struct steps steps;
    const float *weights; /* (2, panels of the cells, 4 num_cells, PANEL): U, transposed */
    const float *start, *gates, *cells;
    float *outputs_grad; /* (num_rows, num_cells): h_; from above at first */
    float *gates_grad;   /* (num_rows, 4 num_cells) */
    float *cell_grad;    /* (2, num_sequences, num_cells): zeros at first */
};

INLINE long panels_of(long columns) { return (columns + PANEL - 1) / PANEL; }

EXPORT void KERNEL(bilstm_forward)(const struct forward *job) {
    const struct steps *steps = &job->steps;
    const long cells = steps->num_cells, gates = GATES * cells, weights = panels_of(gates) * cells * PANEL;
    for (long step = 0, row = 0, earlier = 0; step < steps->num_steps; step++) {
        const long size = steps->batch_sizes[step], size_before = step ? steps->batch_sizes[step - 1] : 0;
        for (long direction = 0; direction < DIRECTIONS; direction++) {
            const long now = row + direction * size, before = earlier + direction * size_before;
            if (step)
                KERNEL(matmul_panels)(job->outputs + before * cells, cells, job->weights + direction * weights,
                                      job->gates + now * gates, gates, size, cells, gates, 1);
            KERNEL(cell_forward)(job->gates + now * gates, gates, step ? job->cells + before * cells : job->start,
                                 job->cells + now * cells, job->outputs + now * cells, size, cells, __builtin_nanf(""), 1);
        }
        earlier = row;
        row += DIRECTIONS * size;
    }
}

EXPORT void KERNEL(bilstm_backward)(const struct backward *job) {
    const struct steps *steps = &job->steps;
    const long cells = steps->num_cells, gates = GATES * cells, weights = panels_of(cells) * gates * PANEL;
    long row = steps->num_rows;
    for (long step = steps->num_steps; step-- > 0;) {
        const long size = steps->batch_sizes[step], size_before = step ? steps->batch_sizes[step - 1] : 0;
        row -= DIRECTIONS * size;
        for (long direction = 0; direction < DIRECTIONS; direction++) {
            const long now = row + direction * size, before = row + (direction - DIRECTIONS) * size_before;
            KERNEL(cell_backward)(job->outputs_grad + now * cells, job->gates + now * gates, gates, job->cells + now * cells,
                                  step ? job->cells + before * cells : job->start,
                                  job->cell_grad + direction * steps->num_sequences * cells, job->gates_grad + now * gates,
                                  gates, size, cells, __builtin_nanf(""));
            if (step)
                KERNEL(matmul_panels)(job->gates_grad + now * gates, gates, job->weights + direction * weights,
                                      job->outputs_grad + before * cells, cells, size, gates, cells, 1);
        }
    }
}
