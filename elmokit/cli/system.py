"""What the verbs that learn ask of the system. Call it before torch is imported.

Every step asks for the same memory again, and asking the system each time is slow. Between two operations torch's
helper threads wait on their toes, for milliseconds, which costs the threads that do the work a part of their core.
"""

import ctypes
import os

# Of glibc's mallopt: no block is mapped on its own, and nothing at the heap's end is given back between steps.
SETTINGS = {-4: 0, -1: 2**31 - 1}


def keep_memory() -> None:
    """Let torch ask for large pages, and the C library keep what was freed.

    A setting of the user's own in the environment stays.
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


def rest_soon() -> None:
    """Let torch's helper threads sleep after a quarter of a millisecond without work, where they are GNU OpenMP's."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
