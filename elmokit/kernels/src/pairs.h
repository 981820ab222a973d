/* bfloat16, the upper half of a float32: rounding, and products of pairs summed in float32.
 *
 * AVX512_BF16 multiplies and adds two pairs per lane in one instruction; elsewhere the same takes two. The portable twin
 * rounds operands alike and differs in the rounding of sums, and in numbers below 1e-38, which the instruction reads as
 * zero.
 */
#ifndef ELMOKIT_PAIRS_H
#define ELMOKIT_PAIRS_H

#include "kernel.h"

/* To the nearest, halfway to even. NaN stays NaN: the bit that tells it from infinity may be among those cut. */
INLINE uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

/* The same for a register. */
INLINE halves round_lanes(vec value) {
#if defined(__AVX512BF16__)
    return (halves)_mm512_cvtneps_pbh((__m512)value);
#else
    const uvec bits = (uvec)value;
    const uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
    const uvec is_nan = (uvec)(value != value);
    return __builtin_convertvector((nan & is_nan) | (rounded & ~is_nan), halves);
#endif
}

/* sum + low products + high products of a register of weight pairs with one pair of inputs. */
INLINE vec add_bf16_pair(vec sum, ivec pairs, int32_t input) {
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512i)pairs, (__m512bh)_mm512_set1_epi32(input));
#else
    const ivec inputs = input - (ivec){0};
    sum += (vec)(pairs << 16) * (vec)(inputs << 16);
    return sum + (vec)(pairs & (int32_t)0xffff0000u) * (vec)(inputs & (int32_t)0xffff0000u);
#endif
}

#endif
