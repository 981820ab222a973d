/* Dropout: x scale where 16 random bits, as a number, are at least `least`; else 0. The same for its gradient. */
#include "kernel.h"

EXPORT void KERNEL(drop)(const float *inputs, const int16_t *drawn, float *outputs, long count, int least, float scale) {
    for (long k = 0; k < count; k++) outputs[k] = drawn[k] >= least ? inputs[k] * scale : 0.0f;
}
