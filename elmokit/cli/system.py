"""Settings of the C library and of OpenMP. Call these functions before torch is imported.

Every training step asks for the same memory again, and asking the system each time is slow. Between two operations,
idle OpenMP threads busy-wait for milliseconds, and take CPU from the working threads.
"""

import ctypes
import os

# Options of glibc's mallopt: one arena for all threads, map no block on its own, and never return the end of the heap
# to the system. Arenas of other threads are returned whenever they are empty, so every step would map them anew.
SETTINGS = {-8: 1, -4: 0, -1: 2**31 - 1}
TUNABLES = "glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=2147483647"  # the same
SPIN_COUNT = "10000"  # about a quarter of a millisecond


def keep_freed_memory() -> None:
    """Make torch ask for large pages, and the C library keep freed memory.

    The user's own settings in the environment win.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another system, or another C library
        return
    for option, value in SETTINGS.items():
        set_option(option, value)


def keep_freed_memory_of_children() -> None:
    """Give processes that are started from now on the settings of `keep_freed_memory`."""
    if not any(name.startswith("MALLOC_") for name in os.environ):
        os.environ.setdefault("GLIBC_TUNABLES", TUNABLES)


def limit_spinning() -> None:
    """Make idle threads of GNU OpenMP sleep after a quarter of a millisecond.

    The user's own settings in the environment win, unless they are empty, which libgomp rejects.
    """
    if not os.environ.get("OMP_WAIT_POLICY") and not os.environ.get("GOMP_SPINCOUNT"):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
