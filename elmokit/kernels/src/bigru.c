/* All steps of a bidirectional GRU in cuDNN's form, forward and backward.
 *
 * Positions are time-major, per direction: step t has batch_sizes[t] of them, the first of the sequences of step t - 1. Gates
 * come with the half from the inputs, a. With h' of the same sequence one step before, zero in the first step, and
 * u = U h' + b:
 *
 *     r = s(a_r + u_r)    k = s(a_k + u_k)    c = tanh(a_c + r u_c)    h = k h' + (1 - k) c        s(x) = 1 / (1 + e^-x)
 *
 * Backward, last step first, with h_ from above and from the next step: u_ = factors h_, and h'_ = k h_ + U^T u_. The three
 * factors follow from what forward leaves, for all steps at once.
 */
#include "panels.h"
#include "squash.h"

enum { DIRECTIONS = 2, BLOCKS = 3 };

/* panels.c */
EXPORT void KERNEL(matmul_panels)(const float *inputs, long input_stride, const float *panels, float *out, long out_stride,
                                  long num_rows, long num_inputs, long num_outputs, int accumulate);

struct steps {
    const int64_t *batch_sizes;
    int64_t num_steps, num_positions, num_sequences, width;
};

struct forward {
    struct steps steps;
    const float *weights; /* (2, panels of 3 width, width, PANEL): U */
    const float *bias;    /* (2, 3 width) */
    float *gates;         /* (2, num_positions, 3 width): r, k, c at the end */
    float *read;          /* (2, num_positions, width): h' */
    float *heard;         /* (2, num_positions, width): u_c */
    float *outputs;       /* (2, num_positions, width): h */
    float *room;          /* (num_sequences, 3 width): u of one step */
};

struct backward {
    struct steps steps;
    const float *weights; /* (2, panels of width, 3 width, PANEL): U, transposed */
    const float *gates;
    const float *factors; /* (2, num_positions, 3 width): of u_r, u_k and u_c */
    float *outputs_grad;  /* (2, num_positions, width): h_; from above at first */
    float *recurrent_grad; /* (2, num_positions, 3 width): u_ */
};

INLINE long panels_of(long columns) { return (columns + PANEL - 1) / PANEL; }

/* `count` columns of one position. */
INLINE void advance(float *gates, const float *recurrent, const float *read, float *heard, float *output, long width,
                    long count) {
    const vec reset = sigmoid(load_part(gates, count) + load_part(recurrent, count));
    const vec keep = sigmoid(load_part(gates + width, count) + load_part(recurrent + width, count));
    const vec heard_now = load_part(recurrent + 2 * width, count);
    const vec candidate = hyperbolic_tangent(load_part(gates + 2 * width, count) + reset * heard_now);
    store_part(gates, reset, count);
    store_part(gates + width, keep, count);
    store_part(gates + 2 * width, candidate, count);
    store_part(heard, heard_now, count);
    store_part(output, candidate + keep * (load_part(read, count) - candidate), count);
}

EXPORT void KERNEL(bigru_forward)(const struct forward *job) {
    const struct steps *steps = &job->steps;
    const long width = steps->width, gates = BLOCKS * width, weights = panels_of(gates) * width * PANEL;
    for (long direction = 0; direction < DIRECTIONS; direction++) {
        long now = direction * steps->num_positions;
        for (long step = 0; step < steps->num_steps; step++) {
            const long size = steps->batch_sizes[step];
            for (long row = 0; row < size; row++)
                memcpy(job->room + row * gates, job->bias + direction * gates, (size_t)gates * sizeof(float));
            if (step) {
                const float *before = job->outputs + (now - steps->batch_sizes[step - 1]) * width;
                memcpy(job->read + now * width, before, (size_t)(size * width) * sizeof(float));
                KERNEL(matmul_panels)(before, width, job->weights + direction * weights, job->room, gates, size, width, gates, 1);
            } else
                memset(job->read + now * width, 0, (size_t)(size * width) * sizeof(float));
            for (long row = 0; row < size; row++)
                for (long at = 0; at < width; at += LANES) {
                    const long place = (now + row) * width + at, count = smaller_of(width - at, LANES);
                    float *open = job->gates + (now + row) * gates + at;
                    const float *recurrent = job->room + row * gates + at;
                    if (count == LANES)
                        advance(open, recurrent, job->read + place, job->heard + place, job->outputs + place, width, LANES);
                    else
                        advance(open, recurrent, job->read + place, job->heard + place, job->outputs + place, width, count);
                }
            now += size;
        }
    }
}

/* `count` columns of one position; h'_ of the step before gets what does not come through U. */
INLINE void retreat(const float *gates, const float *factors, const float *grad, float *recurrent_grad, float *before,
                    long width, long count) {
    const vec reached = load_part(grad, count);
    for (long block = 0; block < BLOCKS; block++)
        store_part(recurrent_grad + block * width, load_part(factors + block * width, count) * reached, count);
    if (before) store_part(before, load_part(before, count) + load_part(gates + width, count) * reached, count);
}

EXPORT void KERNEL(bigru_backward)(const struct backward *job) {
    const struct steps *steps = &job->steps;
    const long width = steps->width, gates = BLOCKS * width, weights = panels_of(width) * gates * PANEL;
    for (long direction = 0; direction < DIRECTIONS; direction++) {
        long now = (direction + 1) * steps->num_positions;
        for (long step = steps->num_steps; step-- > 0;) {
            const long size = steps->batch_sizes[step];
            now -= size;
            float *before = step ? job->outputs_grad + (now - steps->batch_sizes[step - 1]) * width : NULL;
            for (long row = 0; row < size; row++)
                for (long at = 0; at < width; at += LANES) {
                    const long place = (now + row) * gates + at, count = smaller_of(width - at, LANES);
                    const float *grad = job->outputs_grad + (now + row) * width + at;
                    float *to = before ? before + row * width + at : NULL;
                    if (count == LANES)
                        retreat(job->gates + place, job->factors + place, grad, job->recurrent_grad + place, to, width, LANES);
                    else
                        retreat(job->gates + place, job->factors + place, grad, job->recurrent_grad + place, to, width, count);
                }
            if (step)
                KERNEL(matmul_panels)(job->recurrent_grad + now * gates, gates, job->weights + direction * weights, before,
                                      width, size, gates, width, 1);
        }
    }
}
