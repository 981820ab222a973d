/* One step of Adam over parts of the weights: one visit to each weight and its two means.
 *
 * With g a gradient times `scale`, which clips it, and the corrections of step t in the caller's hands:
 *
 *     m = m + (1 - b1) (g - m)      v = b2 v + (1 - b2) g^2      w = w - rate m / (sqrt(v) / correction + tiny)
 *
 * where rate = learning rate / (1 - b1^t) and correction = sqrt(1 - b2^t). A matrix may have a gradient in some rows only,
 * `rows`, rising; in all others it is zero, and neither stored nor read.
 */
#include "kernel.h"

struct adam {
    float *weights, *mean, *square; /* (num_rows, width) */
    const float *grad;              /* (num_rows, width), or (listed rows, width) */
    const int64_t *rows;            /* NULL if all rows have a gradient */
    int64_t num_listed, first_row, num_rows, width; /* weights, mean and square begin at row first_row */
    float rate, correction;
};

struct adam_step {
    const struct adam *parts;
    int64_t num_parts;
    float scale, new_mean, keep_square, new_square, tiny; /* 1 - b1, b2, 1 - b2, each rounded once */
};

/* One register; a gradient of NULL is zero. */
INLINE void advance(const struct adam_step *step, const struct adam *part, long at, const float *grad, long count) {
    float *weights = part->weights + at, *mean = part->mean + at, *square = part->square + at;
    const vec g = grad ? load_part(grad, count) * step->scale : (vec){0};
    const vec m = load_part(mean, count), v = load_part(square, count);
    const vec new_m = m + step->new_mean * (g - m);
    const vec new_v = step->keep_square * v + step->new_square * g * g;
    store_part(mean, new_m, count);
    store_part(square, new_v, count);
    vec root;
#if defined(__AVX512F__)
    root = (vec)_mm512_sqrt_ps((__m512)new_v);
#elif defined(__AVX2__)
    root = (vec)_mm256_sqrt_ps((__m256)new_v);
#else
    for (int lane = 0; lane < LANES; lane++) root[lane] = __builtin_sqrtf(new_v[lane]);
#endif
    store_part(weights, load_part(weights, count) - part->rate * new_m / (root / part->correction + step->tiny), count);
}

/* `count` weights from `at` on. */
static void advance_run(const struct adam_step *step, const struct adam *part, long at, const float *grad, long count) {
    const long whole = count - count % LANES;
    if (grad)
        for (long k = 0; k < whole; k += LANES) advance(step, part, at + k, grad + k, LANES);
    else
        for (long k = 0; k < whole; k += LANES) advance(step, part, at + k, NULL, LANES);
    if (whole < count) advance(step, part, at + whole, grad ? grad + whole : NULL, count - whole);
}

/* A matrix whose gradient has some rows only: runs of rows without one, and the listed rows between them. */
static void advance_listed(const struct adam_step *step, const struct adam *part) {
    const long width = part->width, first = part->first_row, end = first + part->num_rows;
    long listed = 0, row = first;
    while (row < end) {
        while (listed < part->num_listed && part->rows[listed] < row) listed++;
        const long next = listed < part->num_listed && part->rows[listed] < end ? part->rows[listed] : end;
        advance_run(step, part, (row - first) * width, NULL, (next - row) * width);
        if (next < end) advance_run(step, part, (next - first) * width, part->grad + listed++ * width, width);
        row = next + 1;
    }
}

EXPORT void KERNEL(adam)(const struct adam_step *step) {
    for (long index = 0; index < step->num_parts; index++) {
        const struct adam *part = step->parts + index;
        if (part->rows)
            advance_listed(step, part);
        else
            advance_run(step, part, 0, part->grad, part->num_rows * part->width);
    }
}
