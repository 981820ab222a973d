/* Products of float16 rows with one float32 vector: a search over stored vectors reads each of them once.
 *
 *     products[n] = sum over k of rows[n][k] vector[k]
 *
 * A float16 has its sign in bit 15, five bits of exponent and ten of fraction. Moved up by 13 bits, with the sign kept at
 * the top, it is a float32 whose exponent is 112 too small, for subnormal numbers too. Infinity and NaN become finite: the
 * caller stores none.
 */
#include "kernel.h"

typedef int16_t halves __attribute__((vector_size(2 * LANES)));

INLINE vec widen(halves packed) {
    const ivec moved = __builtin_convertvector(packed, ivec) << 13; /* bits 28 to 30 are copies of the sign */
    return (vec)(moved & (int32_t)0x8fffffff) * 0x1p112f;
}

INLINE vec load_halves(const int16_t *from, long count) {
    halves loaded = {0};
    memcpy(&loaded, from, (size_t)count * sizeof *from);
    return widen(loaded);
}

static float dot(const int16_t *row, const float *vector, long width) {
    vec sums[4] = {{0}};
    long k = 0;
    for (; k + 4 * LANES <= width; k += 4 * LANES)
        UNROLL for (int part = 0; part < 4; part++) {
            const long at = k + part * LANES;
            sums[part] += load_halves(row + at, LANES) * load(vector + at);
        }
    for (; k + LANES <= width; k += LANES) sums[0] += load_halves(row + k, LANES) * load(vector + k);
    if (k < width) sums[0] += load_halves(row + k, width - k) * load_part(vector + k, width - k);
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

EXPORT void KERNEL(half_products)(const int16_t *rows, const float *vector, float *products, long num_rows, long width) {
    for (long row = 0; row < num_rows; row++) products[row] = dot(rows + row * width, vector, width);
}
