/* out += inputs . weight^T for so few rows that the weight's way through memory is the whole cost.
 *
 * The weight is read once, as it lies, and every part of it meets all input rows while it is in a register.
 * The outputs are cut into as many stretches as weight rows are read at once: streams far apart come out of
 * memory faster than neighbours, because the processor foresees each of them by itself.
 */
#include "kernel.h"

enum {
    MOST_STREAMS = 4,
    MOST_ROWS = 7,
    STEP = 32,  /* floats of a row that one turn of the loop takes */
    LINE = 16,  /* floats of a cache line */
    AHEAD = 256 /* floats between what is read and what is asked for */
};

/* The products of `streams` weight rows, each `apart` rows from the next, with `rows` input rows. Both numbers
 * are constant, so that the sums are registers. */
INLINE void add_products(const float *weight, long apart, const float *inputs, long num_inputs, float *out,
                         long out_stride, const int streams, const int rows) {
    vec sums[MOST_STREAMS][MOST_ROWS];
    UNROLL for (int s = 0; s < streams; s++)
        UNROLL for (int row = 0; row < rows; row++) sums[s][row] = (vec){0};
    long k = 0;
    for (; k + STEP <= num_inputs; k += STEP) {
        if (streams < MOST_STREAMS) /* few streams leave memory idle unless asked ahead */
            UNROLL for (int s = 0; s < streams; s++)
                UNROLL for (int line = 0; line < STEP; line += LINE)
                    __builtin_prefetch(weight + s * apart * num_inputs + k + line + AHEAD);
        UNROLL for (int at = 0; at < STEP; at += LANES) {
            UNROLL for (int s = 0; s < streams; s++) {
                const vec weights = load(weight + s * apart * num_inputs + k + at);
                UNROLL for (int row = 0; row < rows; row++)
                    sums[s][row] += weights * load(inputs + row * num_inputs + k + at);
            }
        }
    }
    UNROLL for (int s = 0; s < streams; s++) {
        UNROLL for (int row = 0; row < rows; row++) {
            float sum = sum_lanes(sums[s][row]);
            for (long rest = k; rest < num_inputs; rest++)
                sum += weight[s * apart * num_inputs + rest] * inputs[row * num_inputs + rest];
            out[row * out_stride + s * apart] += sum;
        }
    }
}

INLINE void pass_weight(const float *inputs, const float *weight, float *out, long out_stride, long num_inputs,
                        long num_outputs, const int streams, const int rows) {
    const long apart = num_outputs / streams;
    for (long o = 0; o < apart; o++)
        add_products(weight + o * num_inputs, apart, inputs, num_inputs, out + o, out_stride, streams, rows);
    for (long o = apart * streams; o < num_outputs; o++)
        add_products(weight + o * num_inputs, 0, inputs, num_inputs, out + o, out_stride, 1, rows);
}

/* num_rows is 1 to 7. Sixteen registers hold the sums and what goes into them: more rows, fewer streams. */
EXPORT void KERNEL(add_matmul_few_rows)(const float *inputs, const float *weight, float *out, long out_stride,
                                        long num_rows, long num_inputs, long num_outputs) {
#define PASS(streams, rows) pass_weight(inputs, weight, out, out_stride, num_inputs, num_outputs, streams, rows)
    switch (num_rows) {
    case 1: PASS(4, 1); break;
    case 2: PASS(4, 2); break;
    case 3: PASS(4, 3); break;
    case 4: PASS(3, 4); break;
    case 5: PASS(2, 5); break;
    case 6: PASS(2, 6); break;
    case 7: PASS(2, 7); break;
    }
#undef PASS
}
