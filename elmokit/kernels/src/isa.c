/* What the loader asks before it calls a kernel. */
#include "kernel.h"

#if defined(WITH_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };

/* Linux gives a process the registers of AMX when it asks for them; other threads and children share the permission. */
static int may_use_amx(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return 0;
    if (!(edx & AMX_BF16) || !(edx & AMX_TILE)) return 0;
    return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}
#else
static int may_use_amx(void) { return 0; }
#endif

/* Goes up with every change to a kernel's arguments or to the layout of what it reads, here and in
 * kernels/library.py: a library left over from another version is not used. */
EXPORT int interface_version(void) { return 13; }

/* The widest of the compiled instruction sets that this machine can run. */
EXPORT const char *best_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
    {
        if (!__builtin_cpu_supports("avx512bf16")) return "avx512";
        return may_use_amx() ? "amxbf16" : "avx512bf16";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}
