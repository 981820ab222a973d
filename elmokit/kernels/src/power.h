/* e^x of a register, for numbers that are not above zero. */
#ifndef ELMOKIT_POWER_H
#define ELMOKIT_POWER_H

#include "squash.h"

/* Below this the power, 2e-35 of the largest, adds nothing to a sum in float32. */
#define LOWEST_EXPONENT (-LARGEST_EXPONENT)

/* -inf gives what LOWEST_EXPONENT does, less than can be told from 0; NaN goes through. */
INLINE vec power_of(vec x) {
    const struct exponential e = split_exp(larger(everywhere(LOWEST_EXPONENT), x));
    return e.power * e.remainder + e.power;
}

INLINE float largest_lane(vec value) {
    float largest = value[0];
    for (int lane = 1; lane < LANES; lane++) largest = value[lane] > largest ? value[lane] : largest;
    return largest;
}

#endif
