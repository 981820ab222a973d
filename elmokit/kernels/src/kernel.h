/* What every kernel shares.
 *
 * Each kernel is compiled once for every instruction set in hatch_build.py. KERNEL(name) puts the set's
 * name behind the function's, so that all of them live in one library and the loader picks those that
 * the machine at hand can run. Kernels use one thread, allocate nothing and keep nothing between calls.
 */
#ifndef ELMOKIT_KERNEL_H
#define ELMOKIT_KERNEL_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define JOIN_EXPANDED(name, isa) name##_##isa
#define JOIN(name, isa) JOIN_EXPANDED(name, isa)
#define KERNEL(name) JOIN(name, KERNEL_ISA)

/* For small functions whose constant arguments must reach the unroller, and for the loops over registers in them. */
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* As many floats as one register holds. */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

/* Rows need no alignment, and may end inside a register: count is LANES but for the last part of a row. */
INLINE vec load_part(const float *from, long count) {
    vec loaded = {0};
    memcpy(&loaded, from, (size_t)count * sizeof *from);
    return loaded;
}

INLINE void store_part(float *to, vec value, long count) { memcpy(to, &value, (size_t)count * sizeof *to); }

INLINE vec load(const float *from) { return load_part(from, LANES); }

INLINE void store(float *to, vec value) { store_part(to, value, LANES); }

INLINE vec choose(ivec where, vec yes, vec no) { return (vec)(((ivec)yes & where) | ((ivec)no & ~where)); }

/* Where either is NaN, both give the second. */
#if defined(__AVX512F__)
INLINE vec smaller(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec larger(vec a, vec b) { return _mm512_max_ps(a, b); }
#elif defined(__AVX2__)
INLINE vec smaller(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec larger(vec a, vec b) { return _mm256_max_ps(a, b); }
#elif defined(__SSE2__)
INLINE vec smaller(vec a, vec b) { return _mm_min_ps(a, b); }
INLINE vec larger(vec a, vec b) { return _mm_max_ps(a, b); }
#else
INLINE vec smaller(vec a, vec b) { return choose(a < b, a, b); }
INLINE vec larger(vec a, vec b) { return choose(a > b, a, b); }
#endif

/* Less zero, not plus zero: that would make a sum of it, since -0 + 0 is not -0. */
INLINE vec everywhere(float value) { return value - (vec){0}; }

typedef float quad __attribute__((vector_size(16)));

INLINE float sum_lanes(vec value) {
    quad parts[LANES / 4];
    memcpy(parts, &value, sizeof value);
    for (int part = 1; part < LANES / 4; part++) parts[0] += parts[part];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

#endif
