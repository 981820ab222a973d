/* One register of LSTM cells between their matrix products.
 *
 * Forward, with gates i, f, o, j before squashing (biases added) and the cell c' of the step before:
 *
 *     c = clip(s(f) c' + s(i) tanh(j)),  m = s(o) tanh(c)          s(x) = 1 / (1 + e^-x)
 *
 * Backward, from m_ and from c_, the gradient that reaches the cell from the step after:
 *
 *     o_ = m_ tanh(c) o (1 - o)
 *     C  = c_ + m_ o (1 - tanh(c)^2),  0 where the clip holds
 *     i_ = C j i (1 - i),  f_ = C c' f (1 - f),  j_ = C i (1 - j^2),  c'_ = C f
 *
 * There i, f, o, j are squashed. A clip of NaN clips nothing.
 */
#ifndef ELMOKIT_CELL_H
#define ELMOKIT_CELL_H

#include "squash.h"

struct gates {
    vec in, forget, out, candidate;
};

INLINE struct gates squash(struct gates raw) {
    return (struct gates){
        .in = sigmoid(raw.in),
        .forget = sigmoid(raw.forget),
        .out = sigmoid(raw.out),
        .candidate = hyperbolic_tangent(raw.candidate),
    };
}

INLINE vec next_cell(struct gates gates, vec before, float clip) {
    return clamp(gates.forget * before + gates.in * gates.candidate, clip);
}

/* Returns the gradients of the gates before squashing; moves cell_grad one step back. */
INLINE struct gates gate_gradients(struct gates gates, vec cell, vec before, vec grad, vec *cell_grad, float clip) {
    const vec squashed = hyperbolic_tangent(cell);
    const vec reached = *cell_grad + grad * gates.out * (1.0f - squashed * squashed);
    const vec through = choose((cell >= clip) | (cell <= -clip), (vec){0}, reached);
    *cell_grad = through * gates.forget;
    return (struct gates){
        .in = through * gates.candidate * (gates.in * (1.0f - gates.in)),
        .forget = through * before * (gates.forget * (1.0f - gates.forget)),
        .out = grad * squashed * (gates.out * (1.0f - gates.out)),
        .candidate = through * gates.in * (1.0f - gates.candidate * gates.candidate),
    };
}

#endif
