"""Memory for the verbs that learn. Every step asks for the same memory again; asking the system each time is slow."""

import ctypes
import os

# Of glibc's mallopt: no block is mapped on its own, and nothing at the heap's end is given back between steps.
SETTINGS = {-4: 0, -1: 2**31 - 1}


def keep_memory() -> None:
    """Let torch ask for large pages, and the C library keep what was freed. Call it before torch is imported.

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
