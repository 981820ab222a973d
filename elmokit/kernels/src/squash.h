/* Sigmoid and tanh of a register.
 *
 * Both rest on e^x - 1, which stays exact in relative terms near zero. Absolute error below 2e-7 everywhere.
 * NaN goes through.
 */
#ifndef ELMOKIT_SQUASH_H
#define ELMOKIT_SQUASH_H

#include "kernel.h"

/* Past this the squashed value no longer changes in float32, and e^x is far from its ends. */
#define LARGEST_EXPONENT 80.0f

/* A limit of NaN clamps nothing. */
INLINE vec clamp(vec value, float limit) {
    if (limit != limit) return value;
    return larger(everywhere(-limit), smaller(everywhere(limit), value));
}

/* e^x = 2^n e^r with n whole and |r| <= ln(2) / 2. */
struct exponential {
    vec power;     /* 2^n */
    vec remainder; /* e^r - 1 */
};

INLINE struct exponential split_exp(vec x) {
    const vec shift = everywhere(12582912.0f); /* 1.5 * 2^23: adding it rounds, and leaves n in the low bits */
    const vec shifted = x * 1.44269504f + shift;
    const vec n = shifted - shift;
    const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln(2) in two parts: n times the first is exact */
    vec series = r * (1.0f / 5040) + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 1.0f / 2;
    return (struct exponential){
        .power = (vec)(((ivec)shifted << 23) + 0x3f800000),
        .remainder = series * (r * r) + r,
    };
}

INLINE vec sigmoid(vec x) {
    const struct exponential e = split_exp(clamp(-x, LARGEST_EXPONENT));
    return 1.0f / (e.power * e.remainder + (e.power + 1.0f));
}

INLINE vec hyperbolic_tangent(vec x) {
    const struct exponential e = split_exp(clamp(x + x, LARGEST_EXPONENT));
    const vec less_one = e.power * e.remainder + (e.power - 1.0f);
    return less_one / (less_one + 2.0f);
}

#endif
