"""The instruction sets of the compiled kernels that this machine can run."""

import ctypes

from elmokit.kernels.library import open_library

LIBRARY = open_library()
ISAS = ("baseline", "avx2", "avx512", "avx512bf16", "amxbf16")


def runnable() -> list[str]:
    """Return the instruction sets of the library that this machine can run: each is a program of its own."""
    if LIBRARY is None:
        return []
    LIBRARY.best_isa.restype = ctypes.c_char_p
    return list(ISAS[: ISAS.index(LIBRARY.best_isa().decode()) + 1])
