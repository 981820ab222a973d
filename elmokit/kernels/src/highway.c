/* A highway between its matrix products, one pass over memory in each direction. */
#include "squash.h"

/* One register; all pointers are to its first number. */
INLINE void mix(float *gate, float *transform, const float *inputs, float *out, long count) {
    const vec open = sigmoid(load_part(gate, count)), there = larger((vec){0}, load_part(transform, count));
    const vec here = load_part(inputs, count);
    store_part(gate, open, count);
    store_part(transform, there, count);
    store_part(out, here + open * (there - here), count);
}

/* Squash gates by a sigmoid and transforms by relu, both in place; mix the transforms with the inputs. */
EXPORT void KERNEL(highway_forward)(float *gate, float *transform, const float *inputs, float *out, long num_values) {
    long at = 0;
    for (; at + LANES <= num_values; at += LANES) mix(gate + at, transform + at, inputs + at, out + at, LANES);
    if (at < num_values) mix(gate + at, transform + at, inputs + at, out + at, num_values - at);
}

/* One register; all pointers are to its first number. */
INLINE void unmix(const float *grad, const float *gate, const float *transform, const float *inputs, float *gate_grad,
                  float *transform_grad, float *inputs_grad, long count) {
    const vec reached = load_part(grad, count), open = load_part(gate, count);
    const vec there = load_part(transform, count), shut = 1.0f - open;
    store_part(gate_grad, reached * (there - load_part(inputs, count)) * (open * shut), count);
    store_part(transform_grad, choose(there <= 0.0f, (vec){0}, reached * open), count); /* NaN is not below zero */
    store_part(inputs_grad, reached * shut, count);
}

/* From the mix's gradient to those of gates and transforms before squashing, and to the part of the inputs' that does
 * not come through these. Gates and transforms are squashed, as the way forward leaves them. */
EXPORT void KERNEL(highway_backward)(const float *grad, const float *gate, const float *transform, const float *inputs,
                                     float *gate_grad, float *transform_grad, float *inputs_grad, long num_values) {
    long at = 0;
    for (; at + LANES <= num_values; at += LANES)
        unmix(grad + at, gate + at, transform + at, inputs + at, gate_grad + at, transform_grad + at, inputs_grad + at,
              LANES);
    if (at < num_values)
        unmix(grad + at, gate + at, transform + at, inputs + at, gate_grad + at, transform_grad + at, inputs_grad + at,
              num_values - at);
}
