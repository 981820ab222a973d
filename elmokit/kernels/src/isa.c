/* What the loader asks before it calls a kernel. */
#include "kernel.h"

/* Goes up with every change to a kernel's arguments or to the layout of what it reads, here and in
 * kernels/library.py: a library left over from another version is not used. */
EXPORT int interface_version(void) { return 11; }

/* The widest of the compiled instruction sets that this machine can run. */
EXPORT const char *best_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        return __builtin_cpu_supports("avx512bf16") ? "avx512bf16" : "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}
